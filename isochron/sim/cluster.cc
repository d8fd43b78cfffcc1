#include "isochron/sim/cluster.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "isochron/core/error.h"

namespace isochron::sim {
namespace {

/// Refuses fields of one part of a cluster, each with its place, value and what is permitted.
class Checker {
 public:
  explicit Checker(std::string place) : place_(std::move(place)) {}

  template <class Value>
  void require(bool holds, std::string_view field, const Value& value, std::string_view permitted) const {
    if (!holds) {
      refuse(place_ + ": " + std::string(field), value, permitted);
    }
  }

  void positive(std::string_view field, double value) const {
    require(std::isfinite(value) && value > 0.0, field, value, "a finite number above 0");
  }
  void not_negative(std::string_view field, double value) const {
    require(std::isfinite(value) && value >= 0.0, field, value, "a finite number, 0 or more");
  }
  void deviation(std::string_view field, double value) const {
    require(value >= 0.0 && value <= kMostNoise, field, value, "0 to 3");
  }
  void share(std::string_view field, double value) const {
    require(value >= 0.0 && value <= 1.0, field, value, "0 to 1");
  }

 private:
  std::string place_;
};

void validate_noise(const Noise& noise, const Checker& check) {
  check.deviation("noise", noise.sigma);
  check.require(
      noise.autocorrelation >= 0.0 && noise.autocorrelation < 1.0,
      "autocorrelation",
      noise.autocorrelation,
      "0 to below 1");
  check.share("spike_probability", noise.spike_probability);
  check.require(
      std::isfinite(noise.spike_low) && noise.spike_low > 1.0, "spike_low", noise.spike_low, "a finite number above 1");
  check.require(
      std::isfinite(noise.spike_high) && noise.spike_high >= noise.spike_low,
      "spike_high",
      noise.spike_high,
      "a finite number, spike_low or more");
  check.deviation("drift", noise.drift);
}

void validate_interference(const Interference& interference, const Checker& check) {
  check.require(
      std::isfinite(interference.slowdown) && interference.slowdown >= 1.0,
      "interference slowdown",
      interference.slowdown,
      "a finite number, 1 or more");
  // Bounded so that their sum cannot overflow.
  constexpr std::int64_t kLongest = 1'000'000'000'000;
  const auto steps = [&](std::string_view field, std::int64_t value) {
    check.require(value >= 0 && value <= kLongest, field, value, "0 to 1e12 steps");
  };
  steps("interference on", interference.on);
  steps("interference off", interference.off);
  steps("interference phase", interference.phase);
}

void validate_worker(const WorkerSpec& worker) {
  const Checker check("worker \"" + worker.name + "\"");
  check.require(
      !worker.name.empty() && worker.name != "*", "name", "\"" + worker.name + "\"", R"(any text but "" and "*")");
  check.positive("cores", worker.cores);
  check.not_negative("overhead", worker.overhead);
  check.not_negative("plateau", worker.plateau);
  check.not_negative("cold_seconds", worker.cold_seconds);
  validate_noise(worker.noise, check);
  validate_interference(worker.interference, check);
  check.not_negative("network rate", worker.link.bytes_per_second);
  check.not_negative("network delay", worker.link.delay_seconds);
  check.require(worker.gpu_share >= 0.0 && worker.gpu_share <= 100.0, "gpu_share", worker.gpu_share, "0 to 100");
  check.require(worker.min_batch >= 0, "min_batch", worker.min_batch, "0 or more");
  check.require(worker.max_batch >= worker.min_batch, "max_batch", worker.max_batch, "min_batch or more");
  check.require(worker.granularity >= 1, "granularity", worker.granularity, "1 or more");
}

void validate_change(const Change& change, std::size_t number, const std::set<std::string>& names) {
  const Checker check("change " + std::to_string(number));
  check.require(
      change.at_step.has_value() != change.at_seconds.has_value(),
      "its time",
      change.at_step ? "given twice" : "missing",
      "one of at_step and at_seconds");
  if (change.at_step) {
    check.require(*change.at_step >= 0, "at_step", *change.at_step, "0 or more");
  } else {
    check.not_negative("at_seconds", *change.at_seconds);
  }
  check.require(
      change.worker == "*" || names.contains(change.worker),
      "worker",
      "\"" + change.worker + "\"",
      "the name of a worker, or \"*\"");
  const bool speed = change.cores.has_value();
  check.require(
      speed != (change.event != Event::kSpeed),
      "what changes",
      speed ? "given twice" : "missing",
      "one of cores and event");
  if (speed) {
    check.positive("cores", *change.cores);
  }
}

}  // namespace

void ClusterSpec::validate() const {
  const Checker check("cluster \"" + name + "\"");
  check.require(!workers.empty(), "the number of workers", "0", "1 or more");
  check.positive("sample_seconds", sample_seconds);
  check.deviation("common_noise", common_noise);
  std::set<std::string> names;
  for (const WorkerSpec& worker : workers) {
    validate_worker(worker);
    check.require(
        names.insert(worker.name).second, "a worker's name", "\"" + worker.name + "\" again", "distinct names");
  }
  check.require(
      !std::ranges::all_of(workers, &WorkerSpec::absent), "the number of workers at the start", "0", "1 or more");
  for (std::size_t i = 0; i < changes.size(); ++i) {
    validate_change(changes[i], i + 1, names);
  }
}

}  // namespace isochron::sim
