#include "isochron/core/trace/share_gain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>

#include "isochron/core/trace/metrics.h"

namespace isochron {
namespace {

/// Overheads, in multiples of an equal share.
constexpr std::array<double, 14> kOverheads{0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0};
constexpr double kPriorOverhead = 0.05;     // before any move an overhead is likely to be below this; the tail is heavy
constexpr double kLeastMove = 0.1;          // |d log b| below which overheads cannot be told apart
constexpr std::size_t kMostWorkers = 4096;  // logs come from outside: no more are followed
constexpr double kMostSamples = 1e12;       // of a step, likewise
constexpr double kMostNoise = 0.5;          // standard deviation of log time beyond which times do not follow the batch

double median(std::span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

template <class T, std::size_t N>
std::span<const T> filled(const std::array<T, N>& ring, std::size_t count) {
  return std::span(ring).first(std::min(count, N));
}

double samples_of(const std::vector<WorkerStep>& workers) {
  double samples = 0.0;
  std::ranges::for_each(workers, [&](const WorkerStep& worker) { samples += static_cast<double>(worker.batch); });
  return samples;
}

}  // namespace

ShareGain::ShareGain(std::int64_t global_batch, const std::vector<RunHeader::Member>& workers)
    : global_batch_(global_batch),
      typical_batch_(std::max(
          1.0, static_cast<double>(global_batch) / static_cast<double>(std::max<std::size_t>(1, workers.size())))) {
  for (const RunHeader::Member& member : workers) {
    kinds_[member.id] = member.kind;
  }
}

void ShareGain::add(const StepRecord& record) {
  double longest = 0.0;
  for (const WorkerStep& worker : record.workers) {
    const double seconds = worker.compute_seconds;
    const bool has_room = tracks_.size() < kMostWorkers || tracks_.contains(worker.id);
    if (has_room && worker.batch > 0 && seconds >= kShortestStep && seconds <= kLongestStep) {
      observe(tracks_[worker.id], static_cast<double>(worker.batch), seconds);
      longest = std::max(longest, seconds);
    }
  }
  // What is left over at the end of an epoch says nothing of the shares of a whole batch.
  const auto whole = static_cast<double>(global_batch_);
  const bool is_rest = samples_of(record.workers) < whole && samples_of(last_) >= whole;
  if (!is_rest || !std::ranges::equal(record.workers, last_, {}, &WorkerStep::id, &WorkerStep::id)) {
    last_ = record.workers;
  }
  if (longest > 0.0 && std::isfinite(record.seconds)) {
    rests_[steps_ % kRecent] = std::max(0.0, record.seconds - longest);
    const double used = utilization(record);
    used_[steps_ % kRecent] = std::isfinite(used) ? std::clamp(used, 0.0, 1.0) : 0.0;
    ++steps_;
  }
}

void ShareGain::observe(Track& track, double batch, double seconds) {
  if (track.seen > 0) {
    const Curve::Point& before = track.recent[(track.seen - 1) % kRecent];
    const double change = std::log(seconds / before.seconds);
    if (batch == before.batch) {
      constexpr double kMemory = 0.9;  // half the squared difference of two readings is their variance
      track.noise = std::max(1e-8, kMemory * track.noise + (1.0 - kMemory) * 0.5 * std::min(change * change, 0.25));
    } else if (std::abs(std::log(batch / before.batch)) > kLeastMove) {
      if (track.moves.size() == kMoves) {
        track.moves.erase(track.moves.begin());
      }
      track.moves.push_back({.before = before.batch, .after = batch, .log_time_change = change});
    }
  }
  track.largest = std::max(track.largest, batch);
  track.recent[track.seen++ % kRecent] = {.batch = batch, .seconds = seconds};
}

void ShareGain::set_fixed_share(WorkerId worker, double share) {
  tracks_[worker].fixed_share = std::clamp(share, 0.0, 0.99);
}

const std::string& ShareGain::kind_of(WorkerId worker) const {
  static const std::string unknown;
  const auto found = kinds_.find(worker);
  return found == kinds_.end() ? unknown : found->second;
}

/// In samples, by kind: the mean over the candidates, by the evidence of all workers of the kind.
std::map<std::string_view, double> ShareGain::overheads() const {
  std::map<std::string_view, std::array<double, kOverheads.size()>> misfits;  // nats
  for (const auto& [id, track] : tracks_) {
    auto& misfit = misfits[kind_of(id)];
    const double variance = 3.0 * track.noise + 1e-3;  // two noisy times, and 3 % that the model leaves out
    for (const Move& move : track.moves) {
      for (std::size_t i = 0; i < kOverheads.size(); ++i) {
        const double overhead = kOverheads[i] * typical_batch_;
        const double error = move.log_time_change - std::log((overhead + move.after) / (overhead + move.before));
        misfit[i] += std::min(25.0, error * error / variance) / 2.0;  // bounded: no outlier decides
      }
    }
  }
  std::map<std::string_view, double> overheads;
  for (auto& [kind, misfit] : misfits) {
    for (std::size_t i = 0; i < misfit.size(); ++i) {
      misfit[i] += 2.0 * std::log1p(kOverheads[i] / kPriorOverhead);
    }
    const double least = std::ranges::min(misfit);
    double sum = 0.0;
    double weights = 0.0;
    for (std::size_t i = 0; i < misfit.size(); ++i) {
      // Candidates are not evenly spaced: each stands for half the way to its neighbours.
      const double left = kOverheads[i > 0 ? i - 1 : 0];
      const double right = kOverheads[std::min(i + 1, misfit.size() - 1)];
      const double weight = 0.5 * (right - left) * std::exp(least - misfit[i]);
      sum += weight * kOverheads[i];
      weights += weight;
    }
    overheads[kind] = sum / weights * typical_batch_;
  }
  return overheads;
}

Pace ShareGain::pace(const Track& track, double overhead) const {
  std::vector<double> logs;
  for (const Curve::Point& point : filled(track.recent, track.seen)) {
    logs.push_back(std::log(point.seconds / (overhead + point.batch)));
  }
  const double level = median(logs);
  for (double& log : logs) {
    log = std::abs(log - level);
  }
  constexpr double kSigmas = 1.4826;  // standard deviations in a median of absolute deviations
  const double scale = std::exp(level);
  return {.slot = {.curve = Curve::affine(scale * overhead, scale), .min_batch = 1}, .noise = kSigmas * median(logs)};
}

std::vector<Pace> ShareGain::paces() const {
  const std::map<std::string_view, double> known = overheads();
  std::vector<Pace> paces;
  for (const WorkerStep& worker : last_) {
    const auto found = tracks_.find(worker.id);
    if (found == tracks_.end() || found->second.seen < kFewest) {
      return {};
    }
    const Track& track = found->second;
    double overhead = known.at(kind_of(worker.id));
    if (!std::isnan(track.fixed_share)) {
      overhead = track.fixed_share / (1.0 - track.fixed_share) * track.recent[(track.seen - 1) % kRecent].batch;
    }
    paces.push_back(pace(track, overhead));
    if (paces.back().noise > kMostNoise) {
      return {};
    }
  }
  return paces;
}

std::int64_t ShareGain::largest_batch(WorkerId worker) const {
  const auto found = tracks_.find(worker);
  return found == tracks_.end() ? 0 : static_cast<std::int64_t>(found->second.largest);
}

double ShareGain::rest_seconds() const {
  const std::span<const double> known = filled(rests_, steps_);
  std::vector<double> rests(known.begin(), known.end());
  return rests.empty() ? 0.0 : median(rests);
}

ShareGain::Estimate ShareGain::estimate() const {
  const std::vector<Pace> known = paces();
  if (known.size() < 2 || steps_ < kFewest || global_batch_ < std::ssize(known)) {
    return {};
  }
  const double rest = rest_seconds();
  std::vector<std::int64_t> shares(last_.size());
  std::ranges::transform(last_, shares.begin(), &WorkerStep::batch);
  const double samples = samples_of(last_);
  if (samples < static_cast<double>(known.size()) || samples > kMostSamples) {
    return {};
  }
  const std::vector<std::int64_t> even = split(known, static_cast<std::int64_t>(samples), Shares::kEqual);
  const double equal = expected_compute(known, even) + rest;
  const double now = equal / (expected_compute(known, shares) + rest);
  // Where speeds have changed within these steps, a split that fits their mean seems better than any was.
  const std::span<const double> used = filled(used_, steps_);
  const double mean_used = std::accumulate(used.begin(), used.end(), 0.0) / static_cast<double>(used.size());
  const double best = speedup(known, global_batch_, rest);
  return {.now = now, .best = mean_used > 0.0 ? std::min(best, now / mean_used) : best};
}

}  // namespace isochron
