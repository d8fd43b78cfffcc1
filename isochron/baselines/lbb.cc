#include "isochron/baselines/lbb.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "isochron/baselines/smoothed_times.h"
#include "isochron/core/allocate/allocate.h"
#include "isochron/core/policy/per_worker.h"

namespace isochron {
namespace {

constexpr std::int64_t kMostProbes = 128;

// Two steps per power of two, one for each half of the workers; a worker alone has nothing to share.
std::int64_t probe_steps(const Roster& roster) {
  const auto count = static_cast<std::int64_t>(roster.workers.size());
  if (count == 1) {
    return 0;
  }
  const std::int64_t largest = std::max<std::int64_t>(roster.global_batch / ((count + 1) / 2), 1);
  return 2 * static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(largest)));
}

bool is_usable(const Reading& reading, const Roster& roster) {
  return reading.valid && reading.batch <= roster.global_batch;
}

std::vector<double> times_of(std::span<const Reading> readings, const Roster& roster) {
  std::vector<double> seconds;
  seconds.reserve(readings.size());
  for (const Reading& reading : readings) {
    seconds.push_back(is_usable(reading, roster) ? reading.seconds : kUnknown);
  }
  return seconds;
}

// SE = (max - min) / mean over the workers whose time is known.
double spread(std::span<const double> seconds) {
  double least = std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for (const double t : seconds) {
    least = std::fmin(least, t);
    largest = std::fmax(largest, t);
  }
  return (largest - least) / mean_of_known(seconds);
}

// One unit from the slowest worker that can give one to the fastest that can take one; nothing if there is no such
// pair.
std::optional<std::vector<double>> move_one(
    const Roster& roster, std::span<const double> seconds, std::span<const std::int64_t> current) {
  std::optional<std::size_t> slowest;
  std::optional<std::size_t> fastest;
  for (std::size_t k = 0; k < seconds.size(); ++k) {
    const Worker& worker = roster.workers[k];
    if (std::isnan(seconds[k])) {
      continue;
    }
    if (current[k] - worker.min_batch >= worker.granularity && (!slowest || seconds[k] > seconds[*slowest])) {
      slowest = k;
    }
    if (worker.max_batch - current[k] >= worker.granularity && (!fastest || seconds[k] < seconds[*fastest])) {
      fastest = k;
    }
  }
  if (!slowest || !fastest || seconds[*slowest] <= seconds[*fastest]) {
    return std::nullopt;
  }
  const auto unit =
      static_cast<double>(std::max(roster.workers[*slowest].granularity, roster.workers[*fastest].granularity));
  std::vector<double> batches(current.begin(), current.end());
  batches[*slowest] -= unit;
  batches[*fastest] += unit;
  return batches;
}

std::string whole_percent(double share) {
  return std::to_string(std::llround(100.0 * share)) + " %";
}

}  // namespace

void LbbOptions::describe(OptionTable& table) {
  table.number("quiet", quiet, 0.0, 1.0, "spread of the times, (max - min) / mean, below which nothing moves");
  table.number("refit", refit, 0.0, 10.0, "spread from which the curves are fitted anew");
}

Proposal LbbPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  profiles_ = Succession(ids_, roster).carry_over(profiles_, TimeProfile{});
  ids_ = ids_of(roster);
  const Reason reason = current.empty() ? Reason::kStarted : Reason::kRosterChanged;
  if (std::ranges::none_of(profiles_, &TimeProfile::empty)) {
    probes_left_ = 0;
    return solve(roster, reason, "split solved for the workers that stay");
  }
  probes_left_ = probe_steps(roster);
  if (probes_left_ == 0) {
    return {.batches = equal_split(roster), .reason = reason, .words = "a worker alone takes all"};
  }
  return probe(roster, reason);
}

Proposal LbbPolicy::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  if (std::ranges::none_of(readings, [&](const Reading& reading) { return is_usable(reading, roster); })) {
    return keep(current, Reason::kNoTelemetry, "no worker has reported a time");
  }
  return probes_left_ > 0 ? follow_profile(roster, readings) : follow_spread(roster, readings, current);
}

Proposal LbbPolicy::follow_profile(const Roster& roster, std::span<const Reading> readings) {
  for (std::size_t k = 0; k < readings.size(); ++k) {
    if (is_usable(readings[k], roster)) {
      profiles_[k].insert(readings[k]);
    }
  }
  --probes_left_;
  return probes_left_ > 0 ? probe(roster, Reason::kProbing)
                          : solve(roster, Reason::kRebalanced, "the profile is complete; split solved for its curves");
}

Proposal LbbPolicy::follow_spread(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  const std::vector<double> seconds = times_of(readings, roster);
  const double spread_of_times = spread(seconds);
  const std::string words = "times spread by " + whole_percent(spread_of_times);
  if (spread_of_times >= options_.refit && spread_of_times >= options_.quiet) {
    for (std::size_t k = 0; k < readings.size(); ++k) {
      if (is_usable(readings[k], roster)) {
        profiles_[k].stretch_to(readings[k]);
      }
    }
    return solve(roster, Reason::kRebalanced, words + ": curves fitted anew");
  }
  if (spread_of_times >= options_.quiet) {
    if (auto batches = move_one(roster, seconds, current)) {
      return {
          .batches = std::move(*batches),
          .reason = Reason::kRebalanced,
          .words = words + ": one unit from the slowest to the fastest"};
    }
  }
  return keep(current, Reason::kKept, words);
}

Proposal LbbPolicy::probe(const Roster& roster, Reason reason) const {
  const std::size_t count = roster.workers.size();
  // A saved state may say more than there are.
  const std::int64_t done = std::max<std::int64_t>(probe_steps(roster) - probes_left_, 0);
  const auto side = static_cast<std::size_t>(done % 2);
  const auto small = static_cast<double>(std::int64_t{1} << (done / 2));
  const std::size_t small_count = (count + 1 - side) / 2;
  const double rest = (static_cast<double>(roster.global_batch) - small * static_cast<double>(small_count)) /
                      static_cast<double>(count - small_count);
  std::vector<double> batches(count, std::max(rest, 0.0));
  for (std::size_t k = side; k < count; k += 2) {
    batches[k] = small;
  }
  return {
      .batches = std::move(batches),
      .reason = reason,
      .words = "profiling batches of " + std::to_string(std::llround(small)) + " on every other worker"};
}

Proposal LbbPolicy::solve(const Roster& roster, Reason reason, std::string words) const {
  const auto known = std::ranges::find_if_not(profiles_, &TimeProfile::empty);
  std::vector<Slot> slots;
  slots.reserve(profiles_.size());
  for (std::size_t k = 0; k < profiles_.size(); ++k) {
    const Worker& worker = roster.workers[k];
    slots.push_back(
        // A worker that has never reported is taken for the first one that has.
        {.curve = (profiles_[k].empty() ? *known : profiles_[k]).curve(),
         .offset_seconds = worker.offset_seconds,
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
  const Allocation allocation = allocate(slots, roster.global_batch);
  return {
      .batches = {allocation.batch_sizes.begin(), allocation.batch_sizes.end()},
      .reason = reason,
      .words = std::move(words)};
}

void LbbPolicy::exchange(StateExchange& state) {
  state.field("probes_left", probes_left_);
  if (probes_left_ < 0 || probes_left_ > kMostProbes) {
    throw std::invalid_argument(
        "state field probes_left is " + std::to_string(probes_left_) + "; permitted: 0 to " +
        std::to_string(kMostProbes));
  }
  const std::size_t workers = profiles_.size();
  state.parts("profiles", profiles_);
  if (profiles_.size() != workers) {
    throw std::invalid_argument("state field profiles has the wrong length; permitted: one for every worker");
  }
}

}  // namespace isochron
