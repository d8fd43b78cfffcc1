#include "isochron/worker/profiler.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <unistd.h>

#include "isochron/core/trace/quantiles.h"
#include "isochron/emulate/machine.h"
#include "isochron/io/process_usage.h"
#include "isochron/io/worker_variables.h"
#include "isochron/train/device.h"
#include "isochron/train/trainer.h"

namespace isochron::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;
constexpr std::int64_t kLeastReadings = 2;  // per round
constexpr std::int64_t kMostReadings = 300;

double elapsed_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

train::Options training_of(const ProfilerOptions& options) {
  train::Options training = options.training;
  training.job.policy = "uniform";
  training.job.min_batch = 0;
  training.job.global_batch = options.max_batch;
  training.epochs = 1;
  return training;
}

/// The launcher's limit, or what the system permits.
double own_cores() {
  const char* const text = std::getenv(io::kWorkerCoresVariable);
  const double cores = text == nullptr ? 0.0 : std::strtod(text, nullptr);
  return cores > 0.0 ? cores : emulate::machine_cores();
}

double resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::string key = "VmHWM:";
    if (line.starts_with(key)) {
      return 1024.0 * std::stod(line.substr(key.size()));
    }
  }
  return 0.0;
}

/// The most memory that this process has held since it was asked to forget.
class PeakMemory {
 public:
  explicit PeakMemory(c10::Device device) : device_(device) {}

  /// What is held now is the most so far.
  void reset() const {
    if (device_.is_cpu()) {
      ::malloc_trim(0);
      std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets VmHWM
      return;
    }
    c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device_.type());
    allocator->emptyCache();
    allocator->resetPeakStats(device_.index());
  }

  /// Resident memory on a CPU; what the allocator has reserved on a GPU. 0 if the system does not say.
  [[nodiscard]] double bytes() const {
    if (device_.is_cpu()) {
      return resident_peak();
    }
    const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
    return static_cast<double>(
        stats.reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak);
  }

 private:
  c10::Device device_;
};

/// A byte of gradients that arrives and is added to one's own; on a GPU with its way through the host's memory. More
/// bytes than caches hold, since those are full of other things after a backward pass.
double copy_seconds(c10::Device device) {
  constexpr int kTimes = 9;
  constexpr std::int64_t kElements = std::int64_t{16} << 20U;
  const at::Tensor arriving = at::ones({kElements}, at::device(device).dtype(at::kFloat));
  const at::Tensor buffer = at::zeros({kElements});
  const at::Tensor sum = at::zeros({kElements});
  std::vector<double> seconds;
  for (int i = 0; i <= kTimes; ++i) {
    const auto start = Clock::now();
    buffer.copy_(arriving);
    sum.add_(buffer);
    if (!device.is_cpu()) {
      arriving.copy_(sum);
    }
    seconds.push_back(elapsed_since(start));
  }
  seconds.erase(seconds.begin());  // warms up
  std::ranges::sort(seconds);
  return quantile(seconds, 0.5) / (static_cast<double>(kElements) * sizeof(float));
}

/// One profile under way.
class Profiler {
 public:
  explicit Profiler(const ProfilerOptions& options)
      : options_(options), trainer_(training_of(options)), memory_(train::choose_device(options.training.device)) {
    const std::int64_t most = std::min(options.max_batch, trainer_.training_samples());
    for (std::int64_t batch = options.min_batch; batch <= most; batch *= 2) {
      sizes_.push_back({.batch = batch});
    }
    if (sizes_.empty()) {
      throw std::invalid_argument(
          "--min-batch is " + std::to_string(options.min_batch) + "; permitted: at most --max-batch and the " +
          std::to_string(trainer_.training_samples()) + " training samples");
    }
    share_ = options.seconds / static_cast<double>(kRounds * sizes_.size());
  }

  ProfilerResults run() {
    start_ = Clock::now();
    first_round();
    for (int round = 1; round < kRounds; ++round) {
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        tell(sizes_[i], measure(sizes_[i]), sizes_.size() * static_cast<std::size_t>(round) + i + 1);
      }
    }
    return {.first = trainer_.job().is_first(), .profile = profile()};
  }

 private:
  struct Size {
    std::int64_t batch = 0;
    std::vector<double> readings;
    double bytes = 0.0;
  };

  /// Looks at memory too, and finds out which sizes are too large or take too long.
  void first_round() {
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      memory_.reset();
      bool fits = true;
      try {
        trainer_.solo_seconds(sizes_[i].batch);
      } catch (const c10::OutOfMemoryError&) {
        fits = false;
      }
      if (!all_agree(fits)) {
        if (i == 0) {
          throw std::invalid_argument(
              "--min-batch is " + std::to_string(options_.min_batch) + "; permitted: a batch that memory holds");
        }
        sizes_.resize(i);
        return;
      }
      const double median = measure(sizes_[i]);
      sizes_[i].bytes = memory_.bytes();
      tell(sizes_[i], median, i + 1);
      // The next size takes twice as long, and at least so many readings.
      const double next = 2.0 * median * static_cast<double>((kLeastReadings + 1) * kRounds);
      if (!all_agree(next < options_.seconds / 2.0)) {
        sizes_.resize(i + 1);
        return;
      }
    }
  }

  bool all_agree(bool value) { return trainer_.job().sum({value ? 0.0 : 1.0}).front() == 0.0; }

  /// The median of this round. Everybody measures for the same time.
  double measure(Size& size) {
    trainer_.solo_seconds(size.batch);  // memory for this size is taken here
    trainer_.job().barrier();
    std::vector<double> readings;
    const auto start = Clock::now();
    while (std::ssize(readings) < kLeastReadings ||
           (elapsed_since(start) < share_ && std::ssize(readings) < kMostReadings)) {
      readings.push_back(trainer_.solo_seconds(size.batch));
    }
    size.readings.insert(size.readings.end(), readings.begin(), readings.end());
    std::ranges::sort(readings);
    return quantile(readings, 0.5);
  }

  void tell(const Size& size, double median, std::size_t measured) {
    if (!options_.on_news || !trainer_.job().is_first()) {
      return;
    }
    const double done = static_cast<double>(measured) / static_cast<double>(kRounds * sizes_.size());
    const double elapsed = elapsed_since(start_);
    options_.on_news(
        {.batch = size.batch, .seconds = median, .done = done, .left_seconds = elapsed * (1.0 - done) / done});
  }

  plan::Profile profile() {
    plan::Profile profile;
    profile.model = options_.training.model;
    profile.dataset = options_.training.dataset;
    profile.dataset_size = trainer_.training_samples();
    const c10::Device device = train::choose_device(options_.training.device);
    profile.device = device.is_cpu() ? "cpu" : "cuda";
    profile.machine = io::host_name();
    profile.cores = own_cores();
    profile.threads = options_.training.threads;
    const train::SoloCosts costs = trainer_.solo_costs();
    profile.parameter_bytes = costs.parameter_bytes;
    profile.prepare_seconds = costs.prepare_seconds;
    profile.update_seconds = costs.update_seconds;
    profile.copy_seconds = copy_seconds(device);
    for (Size& size : sizes_) {
      std::ranges::sort(size.readings);
      profile.points.push_back(
          {.batch = size.batch,
           .p50_seconds = quantile(size.readings, 0.5),
           .p90_seconds = quantile(size.readings, 0.9),
           .bytes = size.bytes,
           .readings = std::ssize(size.readings)});
    }
    return profile;
  }

  const ProfilerOptions& options_;
  train::Trainer trainer_;
  PeakMemory memory_;
  std::vector<Size> sizes_;
  double share_ = 0.0;  // seconds for one size in one round
  Clock::time_point start_;
};

}  // namespace

ProfilerResults measure_profile(const ProfilerOptions& options) {
  return Profiler(options).run();
}

}  // namespace isochron::worker
