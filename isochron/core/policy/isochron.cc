#include "isochron/core/policy/isochron.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>

#include "isochron/core/policy/per_worker.h"
#include "isochron/core/predict/expected_max.h"
#include "isochron/core/random/normal.h"

namespace isochron {
namespace {

// Share of a step's variance that parts of it have by themselves: measured (docs/algorithms.md).
constexpr double kNoiseOfParts = 1.0 / 3.0;
// Variance of the logarithm of an accelerator's times before it is known: they differ less than a CPU's.
constexpr double kAcceleratorNoise = 0.03 * 0.03;
// Steps in which a gain must pay for sizes that workers have not had yet, to be taken at once.
constexpr double kPaysWithin = 50.0;
// Steps without samples after which a worker is measured again; doubled by every time that it stays without.
constexpr std::int64_t kFirstProbe = 50;
constexpr std::int64_t kLastProbe = 3200;
// Steps after which small moves may be checked once more; doubled by every check.
constexpr std::int64_t kFirstCheck = 4;
// Part of a step that a worker must cost to be called a burden.
constexpr double kWorthLeaving = 0.02;

std::vector<double> as_wishes(std::span<const std::int64_t> batches) {
  return {batches.begin(), batches.end()};
}

std::int64_t samples_moved(std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  std::int64_t moved = 0;
  for (std::size_t k = 0; k < from.size(); ++k) {
    moved += std::max<std::int64_t>(0, to[k] - from[k]);
  }
  return moved;
}

std::string percent(double share) {
  const auto tenths = static_cast<std::int64_t>(std::lround(std::clamp(share, 0.0, 1.0) * 1000.0));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::string said_name(const Worker& worker) {
  return worker.name.empty() ? "worker " + std::to_string(worker.id) : worker.name;
}

}  // namespace

void IsochronOptions::describe(OptionTable& table) {
  table.flag("risk", risk, "minimise the expected maximum; off: balance the expected times");
  table.flag("shape", shape, "learn overheads and plateaus; off: every time curve is linear");
  table.flag("two-hypotheses", two_hypotheses, "hold outliers back until confirmed; off: follow every reading");
  table.flag("rent-or-buy", rent_or_buy, "move when the gain has paid for it; off: take every expected gain");
  table.flag("common-mode", common_mode, "take out slowdowns that all workers share");
  table.number("price", price, 0.0, 100.0, "price of a move, in steps");
  table.number("false-alarm", false_alarm, 1e-9, 0.5, "chance per step that noise alone makes an outlier");
  table.number("forgetting", forgetting, 0.5, 1.0, "weight of past likelihood at every step");
  table.choice("start", start, {"equal", "weights"}, "first split: equal shares, or the workers' nominal speeds");
}

Proposal IsochronPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  admit(roster);
  used_.clear();
  anchor_.clear();
  used_gain_ = 0.0;
  const bool first = current.empty();
  if (std::ranges::any_of(tracks_, &Track::seen)) {
    Outlook view = outlook();
    gain_ = 0.0;
    return {
        .batches = as_wishes(best_split(roster, view).batches),
        .reason = Reason::kRosterChanged,
        .words = "dealt anew over the changed workers"};
  }
  const Reason reason = first ? Reason::kStarted : Reason::kRosterChanged;
  const bool weights_known = std::ranges::all_of(roster.workers, [](const Worker& w) { return w.weight > 0.0; });
  if (std::ranges::all_of(roster.workers, [](const Worker& w) { return w.former_speed > 0.0; })) {
    std::vector<double> speeds;
    std::ranges::transform(roster.workers, std::back_inserter(speeds), &Worker::former_speed);
    return {
        .batches = proportional_split(roster, speeds),
        .reason = reason,
        .words = "split by the speeds of an earlier run until the first readings are in"};
  }
  if (options_.start == "weights" && weights_known) {
    std::vector<double> weights;
    std::ranges::transform(roster.workers, std::back_inserter(weights), &Worker::weight);
    return {
        .batches = proportional_split(roster, weights),
        .reason = reason,
        .words = "split by nominal speeds until the first readings are in"};
  }
  return {.batches = equal_split(roster), .reason = reason, .words = "equal shares until the first readings are in"};
}

void IsochronPolicy::admit(const Roster& roster) {
  if (!grid_) {
    typical_batch_ = static_cast<double>(roster.global_batch) / static_cast<double>(roster.workers.size());
    grid_.emplace(typical_batch_);
  }
  tracks_ = Succession(ids_, roster).carry_over(tracks_, Track{});
  ids_ = ids_of(roster);
  // A worker not seen yet counts as the slowest (see outlook()), so it has that one's curve.
  if (const Track* const slowest = slowest_seen()) {
    const std::size_t shape = slowest->shape;
    for (Track& track : tracks_) {
      track.shape = track.seen ? track.shape : shape;
    }
  }
}

const IsochronPolicy::Track* IsochronPolicy::slowest_seen() const {
  const Track* slowest = nullptr;
  double most = 0.0;
  for (const Track& track : tracks_) {
    const double seconds = track.seen ? std::exp(track.scale.belief().level) * shape_of(track)(typical_batch_) : 0.0;
    if (seconds > most) {
      most = seconds;
      slowest = &track;
    }
  }
  return slowest;
}

Proposal IsochronPolicy::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  Proposal proposal = decide(roster, readings, current);
  const std::size_t idle = due_for_probe(roster, current, proposal.batches);
  if (idle < tracks_.size()) {
    return probe(roster, idle);
  }
  proposal.words += advice(roster, proposal.batches);
  return proposal;
}

Proposal IsochronPolicy::decide(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  learn_cold_sizes(roster, readings, current);
  if (std::ranges::none_of(readings, &Reading::valid)) {
    return keep(current, Reason::kNoTelemetry, "no worker sent a usable reading");
  }
  if (options_.shape) {
    learn_shapes(roster, readings);
  }
  const double changes_before = changes_;
  learn_scales(readings);
  ++check_steps_;
  if (anchor_.size() != current.size() || changes_ > changes_before) {
    anchor_.assign(current.begin(), current.end());
  }
  sync_points_ = static_cast<double>(std::ranges::max(readings, {}, &Reading::sync_points).sync_points);

  Outlook view = outlook();
  Choice choice = best_split(roster, view);
  prefer_equal(roster, view, current, choice);
  const auto& [wished, wished_seconds, bet, equal, certain_gain, doubted_gain] = choice;
  const auto suspect = std::ranges::find_if(tracks_, &Track::suspected);
  const std::string suspicion =
      suspect == tracks_.end() ? ""
                               : "worker " + std::to_string(ids_[static_cast<std::size_t>(suspect - tracks_.begin())]) +
                                     " gave a reading too odd to be noise";
  if (std::ranges::equal(wished, current)) {
    return keep(
        current,
        suspicion.empty() ? Reason::kKept : Reason::kOutlier,
        !suspicion.empty()   ? suspicion + "; held until another confirms it"
        : doubted_gain > 0.0 ? "equal shares: the " + percent(doubted_gain) + " that others would gain may be chance"
                             : "the split is the best known");
  }
  const double now = cost(roster, view, current);
  if (wished == equal && !gains(roster, view, current, equal)) {
    gain_ = used_gain_ = 0.0;
    return {
        .batches = as_wishes(equal),
        .reason = Reason::kRebalanced,
        .words = "back to equal shares: others gain nothing that is certain"};
  }
  const double gain = std::ranges::equal(current, equal) ? certain_gain : 1.0 - wished_seconds / now;
  gain_ = std::max(0.0, gain_ + gain);
  const double cold = cold_seconds(roster, view, wished) / now;
  const double price = options_.price + (gain * kPaysWithin > cold ? 0.0 : cold);
  if (gain_ <= (options_.rent_or_buy ? price : 0.0)) {
    if (Choice used = best_used_split(roster, view, current); !used.batches.empty()) {
      const double used_gain = 1.0 - used.seconds / now;
      used_gain_ = std::max(0.0, used_gain_ + used_gain);
      if (used_gain_ > options_.price) {
        gain_ = used_gain_ = 0.0;
        return {
            .batches = as_wishes(used.batches),
            .reason = Reason::kRebalanced,
            .words = "back to a split that was used before, for a step " + percent(used_gain) + " shorter"};
      }
    }
    return keep(
        current,
        suspicion.empty() ? Reason::kKept : Reason::kOutlier,
        suspicion.empty() ? "a gain of " + percent(gain) + " a step has not paid for the move yet"
                          : suspicion + "; held until another confirms it");
  }
  gain_ = used_gain_ = 0.0;
  if (options_.shape && !equal.empty() && has_wandered(current, wished)) {
    check_wait_ = std::clamp(2 * check_wait_, kFirstCheck, kLastProbe);
    check_steps_ = 0;
    return {
        .batches = as_wishes(anchor_),
        .reason = Reason::kProbing,
        .words = "back to an earlier split, to see what the moves since have gained"};
  }
  const bool changed = bet || changes_ > changes_before;
  const std::int64_t moved = samples_moved(current, wished) / roster.units_per_sample;
  const std::string words = "moved " + std::to_string(moved) + (moved == 1 ? " sample" : " samples") + " for a step " +
                            percent(gain) + " shorter" +
                            (bet ? "; " + suspicion + ", a change of speed is the better bet" : "");
  return {
      .batches = as_wishes(wished), .reason = changed ? Reason::kSpeedChanged : Reason::kRebalanced, .words = words};
}

std::size_t IsochronPolicy::due_for_probe(
    const Roster& roster, std::span<const std::int64_t> current, std::span<const double> coming) {
  std::size_t due = tracks_.size();
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    Track& track = tracks_[k];
    if (coming[k] > 0.0) {
      track.probe_wait = current[k] > 0 ? kFirstProbe : track.probe_wait;
    } else if (++track.idle_steps >= track.probe_wait && due == tracks_.size()) {
      // Not more often than in one step of `kFirstProbe` for every step that it costs.
      const Outlook view = outlook();
      const double alone = work_seconds(view, k, roster.workers[k].granularity);
      const double worth = static_cast<double>(kFirstProbe) * alone / step_seconds(roster, view, current);
      due = static_cast<double>(track.idle_steps) >= worth ? k : due;
    }
  }
  return due;
}

Proposal IsochronPolicy::probe(const Roster& roster, std::size_t place) {
  Track& track = tracks_[place];
  track.probe_wait = std::min(2 * track.probe_wait, kLastProbe);
  Roster with = roster;
  Worker& worker = with.workers[place];
  worker.min_batch = std::min(worker.granularity, worker.max_batch);
  return {
      .batches = as_wishes(split(with, outlook().scales)),
      .reason = Reason::kProbing,
      .words = said_name(worker) + " is measured again, after " + std::to_string(track.idle_steps) +
               " steps without samples"};
}

std::string IsochronPolicy::advice(const Roster& roster, std::span<const double> batches) const {
  if (tracks_.size() < 2 || !std::ranges::all_of(tracks_, &Track::seen)) {
    return "";
  }
  const Outlook view = outlook();
  const auto seconds_of = [&](std::size_t k) {
    const auto batch = static_cast<std::int64_t>(batches[k]);
    return batch > 0 ? roster.workers[k].offset_seconds + work_seconds(view, k, batch) : 0.0;
  };
  std::size_t last = 0;
  for (std::size_t k = 1; k < tracks_.size(); ++k) {
    last = seconds_of(k) > seconds_of(last) ? k : last;
  }
  const Worker& worker = roster.workers[last];
  const std::int64_t unit = worker.granularity;
  const std::int64_t least = (worker.min_batch + unit - 1) / unit * unit;
  if (batches[last] > static_cast<double>(least)) {
    return "";
  }
  // It has as little as it may and is the last one all the same.
  Roster without = roster;
  without.workers[last].min_batch = without.workers[last].max_batch = 0;
  std::vector<std::int64_t> others;
  try {
    others = split(without, view.scales);
  } catch (const std::invalid_argument&) {
    return "";  // the others cannot hold the global batch
  }
  const double gain = 1.0 - step_seconds(without, view, others) / seconds_of(last);
  return gain < kWorthLeaving ? ""
                              : "; without " + said_name(worker) + " a step would be " + percent(gain) +
                                    " shorter: it pays to leave it out";
}

void IsochronPolicy::learn_shapes(const Roster& roster, std::span<const Reading> readings) {
  bool learned = false;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    Track& track = tracks_[k];
    const auto batch = static_cast<double>(readings[k].batch);
    if (track.seen && readings[k].valid && batch != track.last_batch) {
      const double change = std::log(readings[k].seconds) - track.last_log_seconds;
      learned |= track.evidence.weigh(*grid_, track.last_batch, batch, change, track.scale.belief().noise);
    }
  }
  if (!learned) {
    return;
  }
  anchor_.clear();  // to begin with this step's split
  const std::vector<std::size_t> chosen = likely_shapes(roster, kShapeTolerance);
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    Track& track = tracks_[k];
    if (track.seen && chosen[k] != track.shape) {
      // The scale was learned at the last batch: what the curve says there must not change.
      const double shift = std::log(shape_of(track)(track.last_batch) / (*grid_)[chosen[k]](track.last_batch));
      track.scale.shift(shift);
      track.last_reading += shift;
    }
    track.shape = chosen[k];
  }
}

void IsochronPolicy::learn_scales(std::span<const Reading> readings) {
  struct Update {
    Track* track;
    double reading;
    double doubt;
    LevelBelief prior;
  };
  std::vector<Update> updates;
  std::vector<double> errors;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    Track& track = tracks_[k];
    if (!readings[k].valid) {
      if (track.seen) {
        track.scale.predict(0.0);
      }
      continue;
    }
    const auto batch = static_cast<double>(readings[k].batch);
    const double log_seconds = std::log(readings[k].seconds);
    const double reading = log_seconds - std::log(shape_of(track)(batch));
    if (!track.seen || track.idle_steps > 0) {
      track.seen = true;
      track.idle_steps = 0;
      track.suspected = false;
      track.scale.reset(reading, track.accelerator ? kAcceleratorNoise : LevelBank::kFirstNoise);
      track.last_reading = reading;
    } else {
      const double doubt = batch == track.last_batch ? 0.0 : track.evidence.doubt(std::log(batch / track.last_batch));
      track.scale.predict(doubt);
      updates.push_back({&track, reading, doubt, track.scale.belief()});
      errors.push_back(reading - updates.back().prior.level);
    }
    track.last_batch = batch;
    track.last_log_seconds = log_seconds;
  }
  const double shared = options_.common_mode ? common_mode_.estimate(errors) : 0.0;
  const double critical = normal_quantile(1.0 - options_.false_alarm / (2.0 * static_cast<double>(tracks_.size())));
  for (const auto& [track, raw, doubt, prior] : updates) {
    const double reading = raw - shared;
    const double surprise = (reading - prior.level) / std::sqrt(prior.noise + prior.variance);
    const double previous = track->last_reading;
    const LevelBank::Verdict verdict = judge(*track, reading, surprise, critical);
    track->scale.update(
        {.reading = reading,
         .verdict = verdict,
         .jumped_to = 0.5 * (reading + previous),
         .learn_noise = doubt < prior.noise,
         .forgetting = options_.forgetting});
  }
  LevelBank::PerFilter pooled{};
  for (const Track& track : tracks_) {
    if (track.seen) {
      std::ranges::transform(pooled, track.scale.log_likelihood(), pooled.begin(), std::plus<>());
    }
  }
  for (Track& track : tracks_) {
    if (track.seen) {
      track.scale.weigh(pooled);
    }
  }
}

LevelBank::Verdict IsochronPolicy::judge(Track& track, double reading, double surprise, double critical) {
  const double before = track.last_surprise;
  track.last_reading = reading;
  track.last_surprise = surprise;
  if (!options_.two_hypotheses) {
    return LevelBank::Verdict::kOrdinary;
  }
  // Two readings on the same side: together as unlikely as one outlier, each at least half of one.
  const bool confirmed = surprise * before > 0.0 && std::abs(surprise + before) > std::numbers::sqrt2 * critical &&
                         std::min(std::abs(surprise), std::abs(before)) > critical / 2.0;
  if (track.suspected) {
    (confirmed ? changes_ : spikes_) += 1.0;
  }
  track.suspected = !confirmed && std::abs(surprise) > critical;
  if (confirmed) {
    track.last_surprise = 0.0;
    return LevelBank::Verdict::kChanged;
  }
  return track.suspected ? LevelBank::Verdict::kHold : LevelBank::Verdict::kOrdinary;
}

IsochronPolicy::Outlook IsochronPolicy::outlook() const {
  const std::vector<double> noise = noise_estimates();
  // Where all meet n times in a step, they wait n times for the slowest of a part of it. What noise the parts have by
  // themselves is sqrt(n) times as large beside a part as it is beside the step; that of whole steps is not.
  const double per_part = 1.0 + kNoiseOfParts * (sync_points_ - 1.0);
  Outlook view;
  double widest = 0.0;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    if (!tracks_[k].seen) {
      view.scales.push_back(kUnknown);
      view.sigmas.push_back(kUnknown);
      continue;
    }
    const LevelBelief belief = tracks_[k].scale.belief();
    view.scales.push_back(std::exp(belief.level));
    view.sigmas.push_back(std::sqrt(per_part * noise[k] * (1.0 + belief.variance / belief.noise)));
    widest = std::max(widest, view.sigmas.back());
  }
  // A worker not seen yet counts as the slowest, unless a cold step shows that it is faster, and as the least certain,
  // so that it does not hold up the others.
  const Track* const slowest = slowest_seen();
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    const Track& track = tracks_[k];
    if (!track.seen && slowest != nullptr) {
      const double scale = std::exp(slowest->scale.belief().level);
      view.scales[k] = track.cold_scale > 0.0 ? std::min(track.cold_scale, scale) : scale;
      view.sigmas[k] = widest;
    }
  }
  return view;
}

std::vector<double> IsochronPolicy::noise_estimates() const {
  // Empirical Bayes: few readings say little about a variance (2 / n on its logarithm), so each estimate is drawn
  // towards the mean over workers, the more so the less they differ beyond that.
  constexpr double kNone = 1e-8;
  constexpr double kLongestMemory = 50.0;
  double count = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  double doubt = 0.0;
  std::vector<double> logs(tracks_.size(), 0.0);
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    const LevelBank& scale = tracks_[k].scale;
    if (!tracks_[k].seen || scale.readings() == 0.0) {
      continue;
    }
    logs[k] = std::log(scale.unbiased_noise());
    count += 1.0;
    sum += logs[k];
    squares += logs[k] * logs[k];
    doubt += 2.0 / std::min(scale.readings(), kLongestMemory);
  }
  if (count == 0.0) {
    return std::vector<double>(tracks_.size(), kNone);
  }
  const double mean = sum / count;
  const double apart = std::max(0.0, squares / count - mean * mean - doubt / count);
  std::vector<double> noise(tracks_.size(), std::exp(mean));
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    const double readings = std::min(tracks_[k].scale.readings(), kLongestMemory);
    if (tracks_[k].seen && readings > 0.0 && apart > 0.0) {
      noise[k] = std::exp(mean + (logs[k] - mean) * apart / (apart + 2.0 / readings));
    }
  }
  return noise;
}

IsochronPolicy::Choice IsochronPolicy::best_split(const Roster& roster, Outlook& view) const {
  Choice best{.batches = split(roster, view.scales)};
  best.bet = bet_on_suspects(roster, view, best.batches);
  best.seconds = cost(roster, view, best.batches);
  if (options_.risk) {
    std::vector<std::int64_t> cautious = risk_split(roster, view);
    const double seconds = cautious == best.batches ? best.seconds : cost(roster, view, cautious);
    if (seconds < best.seconds) {
      best.batches = std::move(cautious);
      best.seconds = seconds;
    }
  }
  return best;
}

std::vector<std::int64_t> IsochronPolicy::risk_split(const Roster& roster, const Outlook& view) const {
  // At the optimum of E[max] the chance that k is the straggler equals k's share of the marginal speed.
  const double speed = std::transform_reduce(
      view.scales.begin(), view.scales.end(), 0.0, std::plus<>(), [](double scale) { return 1.0 / scale; });
  std::vector<double> inflated(view.scales.size());
  for (std::size_t k = 0; k < inflated.size(); ++k) {
    const double share = 1.0 / view.scales[k] / speed;
    inflated[k] = view.scales[k] * std::exp(view.sigmas[k] * normal_quantile(std::clamp(1.0 - share, 1e-6, 0.95)));
  }
  return split(roster, inflated);
}

bool IsochronPolicy::bet_on_suspects(const Roster& roster, Outlook& view, std::vector<std::int64_t>& plain) const {
  if (std::ranges::none_of(tracks_, &Track::suspected)) {
    return false;
  }
  Outlook changed = view;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    if (tracks_[k].suspected) {
      changed.scales[k] = std::exp(tracks_[k].last_reading);
    }
  }
  const std::vector<std::int64_t> bold = split(roster, changed.scales);
  const double chance = changes_ / (changes_ + spikes_);
  const double won = step_seconds(roster, changed, plain) - step_seconds(roster, changed, bold);
  const double lost = step_seconds(roster, view, bold) - step_seconds(roster, view, plain);
  if (chance * won <= (1.0 - chance) * lost) {
    return false;
  }
  plain = bold;
  view = std::move(changed);
  return true;
}

std::vector<std::int64_t> IsochronPolicy::split(const Roster& roster, std::span<const double> scales) const {
  std::vector<Slot> slots(scales.size());
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const Worker& worker = roster.workers[k];
    slots[k] = {
        .curve = shape_of(tracks_[k]).curve(scales[k]),
        .offset_seconds = worker.offset_seconds,
        .min_batch = worker.min_batch,
        .max_batch = worker.max_batch,
        .granularity = worker.granularity};
  }
  return allocate(slots, roster.global_batch).batch_sizes;
}

double IsochronPolicy::cost(const Roster& roster, const Outlook& view, std::span<const std::int64_t> batches) const {
  return options_.risk ? expected_seconds(roster, view, batches) : step_seconds(roster, view, batches);
}

double IsochronPolicy::expected_seconds(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> batches) const {
  std::vector<double> log_means;
  std::vector<double> sigmas;
  log_means.reserve(batches.size());
  sigmas.reserve(batches.size());
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const double work = work_seconds(view, k, batches[k]);
    const double total = roster.workers[k].offset_seconds + work;
    if (total > 0.0) {
      // The offset is certain: only the worker's own part varies.
      log_means.push_back(std::log(total));
      sigmas.push_back(view.sigmas[k] * work / total);
    }
  }
  return log_means.empty() ? 0.0 : expected_max(log_means, sigmas);
}

void IsochronPolicy::Track::exchange(StateExchange& state) {
  state.field("seen", seen);
  state.part("scale", scale);
  state.part("evidence", evidence);
  state.field("shape", shape);
  if (shape >= ShapeGrid::kSize) {
    throw std::invalid_argument("state field shape is " + std::to_string(shape) + "; permitted: below 36");
  }
  state.field("last_batch", last_batch);
  state.field("last_log_seconds", last_log_seconds);
  state.field("last_reading", last_reading);
  state.field("last_surprise", last_surprise);
  state.field("suspected", suspected);
  state.field("idle_steps", idle_steps);
  state.field("probe_wait", probe_wait);
  state.field("accelerator", accelerator);
  state.part("cold", cold);
  state.field("cold_scale", cold_scale);
}

void IsochronPolicy::exchange(StateExchange& state) {
  state.field("typical_batch", typical_batch_);
  state.parts("workers", tracks_);
  if (tracks_.size() != ids_.size()) {
    throw std::invalid_argument(
        "state field workers has " + std::to_string(tracks_.size()) +
        " entries; permitted: " + std::to_string(ids_.size()) + ", one for every worker");
  }
  state.part("common_mode", common_mode_);
  state.field("changes", changes_);
  state.field("spikes", spikes_);
  state.field("gain", gain_);
  state.field("used_gain", used_gain_);
  exchange_used(state);
  state.field("anchor", anchor_);
  state.field("check_steps", check_steps_);
  state.field("check_wait", check_wait_);
  state.field("meetings", sync_points_);
  if (state.restoring()) {
    grid_.emplace(typical_batch_);
  }
}

}  // namespace isochron
