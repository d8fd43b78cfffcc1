#include "isochron/baselines/narx.h"

#include <algorithm>
#include <span>
#include <stdexcept>

namespace isochron {
namespace {

constexpr std::size_t kHidden = 8;
constexpr std::size_t kSpeedsKept = 32;
constexpr std::size_t kExamples = 64;
constexpr std::int64_t kReplays = 3;
constexpr std::int64_t kWarmUp = 16;
constexpr double kRate = 0.01;
constexpr double kLargestPull = 2.0;

}  // namespace

void Narx::Signal::observe(double value) {
  past.push(value);
  scale.observe(value);
}

void Narx::Signal::exchange(StateExchange& state) {
  state.part("past", past);
  state.part("scale", scale);
}

Narx::Narx()
    : speed_(kSpeedsKept),
      cpu_(kUsageTaps - 1),
      memory_(kUsageTaps - 1),
      network_(kInputs, kHidden),
      adam_(network_.size(), kRate),
      examples_(kExamples * (kInputs + 1), 0.0) {
}

double Narx::predict(const Usage& now) const {
  if (speed_.past.size() == 0) {
    return 0.0;
  }
  if (learned_ < kWarmUp) {
    return speed_.past[0];
  }
  return speed_.past.sane(speed_.scale.restored(network_.output(inputs(now))));
}

void Narx::learn(double speed, const Usage& usage) {
  if (speed_.past.size() >= kSpeedTaps) {
    remember(inputs(usage), speed_.scale.normalised(speed));
    train();
  }
  speed_.observe(speed);
  cpu_.observe(usage.cpu);
  memory_.observe(usage.memory);
}

Narx::Inputs Narx::inputs(const Usage& now) const {
  Inputs result{};
  std::size_t next = 0;
  for (std::size_t age = 0; age < kSpeedTaps; ++age) {
    result[next++] = speed_.scale.normalised(speed_.past[age]);
  }
  const auto append = [&](const Signal& signal, double current) {
    result[next++] = signal.scale.normalised(current);
    for (std::size_t age = 0; age + 1 < kUsageTaps; ++age) {
      result[next++] = signal.scale.normalised(signal.past[age]);
    }
  };
  append(cpu_, now.cpu);
  append(memory_, now.memory);
  return result;
}

void Narx::remember(const Inputs& inputs, double target) {
  const auto slot = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(learned_) % kExamples * (kInputs + 1));
  std::ranges::copy(inputs, examples_.begin() + slot);
  examples_[static_cast<std::size_t>(slot) + kInputs] = target;
  ++learned_;
}

void Narx::train() {
  std::vector<double> gradient(network_.size(), 0.0);
  const auto add = [&](std::int64_t index) {
    const auto slot = static_cast<std::size_t>(index) % kExamples * (kInputs + 1);
    const std::span<const double> example(&examples_[slot], kInputs + 1);
    const double error = network_.output(example.first(kInputs)) - example.back();
    network_.add_gradient(example.first(kInputs), std::clamp(error, -kLargestPull, kLargestPull), gradient);
  };
  add(learned_ - 1);
  const std::int64_t kept = std::min<std::int64_t>(learned_, kExamples);
  for (std::int64_t i = 0; i < kReplays; ++i) {
    add((learned_ * kReplays + i) % kept);
  }
  adam_.step(network_.parameters(), gradient);
}

void Narx::exchange(StateExchange& state) {
  state.part("speed", speed_);
  state.part("cpu", cpu_);
  state.part("memory", memory_);
  state.part("network", network_);
  state.part("adam", adam_);
  state.fixed_list("examples", examples_);
  state.field("learned", learned_);
  // Speeds and usage are learned together, and only so many of them.
  const std::size_t usages = std::min(speed_.past.size(), kUsageTaps - 1);
  const bool fits = cpu_.past.size() == usages && memory_.past.size() == usages;
  if (!fits || learned_ < 0 || (learned_ > 0 && speed_.past.size() < kSpeedTaps)) {
    throw std::invalid_argument("state field learned, speed, cpu or memory does not fit the others");
  }
}

}  // namespace isochron
