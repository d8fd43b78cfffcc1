#include "isochron/baselines/lb_bsp_gpu.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "isochron/baselines/kind_median.h"
#include "isochron/core/policy/per_worker.h"

namespace isochron {
namespace {

// So that a ratio of whole numbers, once divided and multiplied, is not rounded down.
constexpr double kRounding = 1e-6;

}  // namespace

Proposal LbBspGpu::start(const Roster& roster, std::span<const std::int64_t> current) {
  begin(roster);
  memory_.assign(roster.workers.size(), kUnknown);
  if (current.empty()) {
    return {.batches = equal_split(roster), .reason = Reason::kStarted, .words = "equal shares"};
  }
  return {
      .batches = proportional_split(roster, fill_by_kind(roster, {current.begin(), current.end()})),
      .reason = Reason::kRosterChanged,
      .words = "shares as before, the median of their kind for newcomers"};
}

void LbBspGpu::begin(const Roster& roster) {
  const std::size_t workers = roster.workers.size();
  const double mean_batch = static_cast<double>(roster.global_batch) / static_cast<double>(workers);
  step_ = std::max<std::int64_t>(1, std::llround(options_.step * mean_batch));
  window_ = options_.window;
  settled_ = false;
  imbalance_ = 0.0;
  last_ = {};
  seconds_before_ = 0.0;
  directions_.assign(workers, 0);
  begin_window(workers);
}

void LbBspGpu::begin_window(std::size_t workers) {
  seconds_.assign(workers, 0.0);
  readings_.assign(workers, 0);
  seen_ = 0;
}

Proposal LbBspGpu::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  gather(readings);
  if (seen_ < window_) {
    return keep(
        current,
        Reason::kObserving,
        "step " + std::to_string(seen_) + " of " + std::to_string(window_) + " of the observation window");
  }
  const std::optional<Pair> pair = find_pair(roster, current);
  begin_window(current.size());
  if (!pair) {
    return keep(current, Reason::kNoTelemetry, "no two workers that report can give and take samples");
  }
  if (pair->straggler_seconds <= pair->leader_seconds) {
    return keep(current, Reason::kKept, "no worker that can give samples is slower than one that can take them");
  }
  return decide(roster, *pair, current);
}

void LbBspGpu::gather(std::span<const Reading> readings) {
  ++seen_;
  for (std::size_t k = 0; k < readings.size(); ++k) {
    if (readings[k].valid) {
      seconds_[k] += readings[k].seconds;
      ++readings_[k];
    }
    memory_[k] = std::isnan(readings[k].usage.memory) ? memory_[k] : readings[k].usage.memory;
  }
}

std::optional<LbBspGpu::Pair> LbBspGpu::find_pair(const Roster& roster, std::span<const std::int64_t> current) const {
  std::optional<std::size_t> straggler;
  std::optional<std::size_t> leader;
  std::vector<double> mean(current.size(), kUnknown);
  for (std::size_t k = 0; k < current.size(); ++k) {
    if (readings_[k] == 0) {
      continue;
    }
    const std::int64_t unit = roster.workers[k].granularity;
    mean[k] = seconds_[k] / static_cast<double>(readings_[k]);
    const bool gives = current[k] - roster.workers[k].min_batch >= unit;
    const bool takes = headroom(roster, k, current[k]) >= unit;
    if (gives && (!straggler || mean[k] > mean[*straggler])) {
      straggler = k;
    }
    if (takes && (!leader || mean[k] < mean[*leader])) {
      leader = k;
    }
  }
  if (!straggler || !leader) {
    return std::nullopt;
  }
  return Pair{
      .straggler = *straggler,
      .leader = *leader,
      .straggler_seconds = mean[*straggler],
      .leader_seconds = mean[*leader]};
}

std::int64_t LbBspGpu::unit_of(const Roster& roster, const Pair& pair) {
  return std::max(roster.workers[pair.straggler].granularity, roster.workers[pair.leader].granularity);
}

std::int64_t LbBspGpu::headroom(const Roster& roster, std::size_t place, std::int64_t batch) const {
  const auto most = static_cast<double>(roster.global_batch);
  const double memory = memory_[place];
  const double by_memory = memory > 0.0 ? static_cast<double>(batch) * (options_.memory_limit / memory - 1.0) : most;
  const double samples = std::floor(std::clamp(by_memory, 0.0, most) + kRounding);
  return std::min(roster.workers[place].max_batch - batch, static_cast<std::int64_t>(samples));
}

bool LbBspGpu::oscillates(const Pair& pair) const {
  return directions_[pair.straggler] > 0 || directions_[pair.leader] < 0;
}

Proposal LbBspGpu::decide(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current) {
  const double imbalance = pair.straggler_seconds / pair.leader_seconds;
  if (imbalance_ > 0.0 && imbalance > (1.0 + options_.restart) * imbalance_) {
    begin(roster);
  }
  if (settled_) {
    return keep(current, Reason::kKept, "settled: smaller moves than one unit are not possible");
  }
  if (oscillates(pair)) {
    imbalance_ = imbalance;
    if (step_ <= unit_of(roster, pair)) {
      return settle(roster, pair, current);
    }
    step_ /= 2;
    window_ += options_.window;
    std::ranges::fill(directions_, 0);
  }
  return move(roster, pair, current);
}

Proposal LbBspGpu::settle(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current) {
  settled_ = true;
  if (pair.straggler_seconds <= seconds_before_) {
    return keep(current, Reason::kKept, "settled: the smallest move goes to and fro");
  }
  return shifted(
      current,
      {.from = last_.to, .to = last_.from, .samples = last_.samples},
      "settled: took back " + words_of(roster, last_));
}

Proposal LbBspGpu::move(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current) {
  const std::int64_t unit = unit_of(roster, pair);
  const std::int64_t room = std::min(
      current[pair.straggler] - roster.workers[pair.straggler].min_batch,
      headroom(roster, pair.leader, current[pair.leader]));
  const std::int64_t samples = std::min(std::max(step_, unit), room) / unit * unit;
  if (samples == 0) {
    return keep(current, Reason::kKept, "no room for a move of one unit");
  }
  last_ = {.from = pair.straggler, .to = pair.leader, .samples = samples};
  seconds_before_ = pair.straggler_seconds;
  directions_[pair.straggler] = -1;
  directions_[pair.leader] = 1;
  return shifted(current, last_, "moved " + words_of(roster, last_));
}

Proposal LbBspGpu::shifted(std::span<const std::int64_t> current, const Move& move, std::string words) {
  Proposal proposal = keep(current, Reason::kRebalanced, std::move(words));
  proposal.batches[move.from] -= static_cast<double>(move.samples);
  proposal.batches[move.to] += static_cast<double>(move.samples);
  return proposal;
}

std::string LbBspGpu::words_of(const Roster& roster, const Move& move) {
  return std::to_string(move.samples) + (move.samples == 1 ? " sample" : " samples") + " from worker " +
         std::to_string(roster.workers[move.from].id) + " to worker " + std::to_string(roster.workers[move.to].id);
}

void LbBspGpu::exchange(StateExchange& state) {
  state.field("step", step_);
  state.field("window", window_);
  state.field("seen", seen_);
  state.field("settled", settled_);
  state.field("imbalance", imbalance_);
  state.field("last_from", last_.from);
  state.field("last_to", last_.to);
  state.field("last_samples", last_.samples);
  state.field("seconds_before", seconds_before_);
  state.fixed_list("seconds", seconds_);
  state.fixed_list("readings", readings_);
  state.fixed_list("memory", memory_);
  state.fixed_list("directions", directions_);
  if (last_.from >= directions_.size() || last_.to >= directions_.size()) {
    throw std::invalid_argument("state field last_from or last_to is not the place of a worker");
  }
}

}  // namespace isochron
