// A controller's saved state with some of its numbers changed, as a checkpoint that was made up would hold it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/core/policy/controller.h"

namespace isochron {

/// Three workers whose speeds differ and change.
inline StepTelemetry fuzz_telemetry(const Controller& controller) {
  const Decision& decision = controller.decision();
  StepTelemetry telemetry{.step = decision.step, .workers = {}};
  for (std::size_t k = 0; k < decision.batch_sizes.size(); ++k) {
    const double speed = 10.0 * static_cast<double>(k + 1) + (decision.step % 7 == 0 ? 5.0 : 0.0);
    telemetry.workers.push_back(
        {.worker = controller.roster().workers[k].id,
         .batch = decision.batch_sizes[k],
         .seconds = 0.01 + static_cast<double>(decision.batch_sizes[k]) / speed,
         .usage = {.cpu = 0.5, .memory = 0.25}});
  }
  return telemetry;
}

inline Controller fuzz_controller(const std::string& policy) {
  Roster roster{.workers = std::vector<Worker>(3), .global_batch = 60};
  for (std::size_t k = 0; k < roster.workers.size(); ++k) {
    roster.workers[k].id = k;
    roster.workers[k].weight = 1.0;
  }
  return {std::move(roster), {.policy = policy, .rate = {}}};
}

/// What the controller knows after `steps` steps.
inline State learned_state(const std::string& policy, int steps) {
  Controller controller = fuzz_controller(policy);
  for (int step = 0; step < steps; ++step) {
    controller.observe(fuzz_telemetry(controller));
  }
  return controller.state();
}

/// Numbers from bytes; zeros when they are used up.
class ByteStream {
 public:
  explicit ByteStream(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool empty() const { return bytes_.empty(); }

  std::uint8_t byte() {
    if (bytes_.empty()) {
      return 0;
    }
    const std::uint8_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }

  /// One that code may not expect, or any.
  double number() {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    constexpr std::array kOdd = {0.0, -0.0, 1.0, -1.0, 2.0, 0.5, kNan, kInfinite, -kInfinite, 0x1p53, -0x1p53, 1e308};
    const std::uint8_t choice = byte();
    if (choice < 2 * kOdd.size()) {
      return kOdd[choice % kOdd.size()];
    }
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) {
      word = (word << 8U) | byte();
    }
    double value = 0.0;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// Changes an element or the length of one field.
inline void damage(State& state, ByteStream& bytes) {
  auto& values = std::next(state.numbers.begin(), bytes.byte() % std::ssize(state.numbers))->second;
  const std::uint8_t what = bytes.byte();
  if (what < 32) {
    values.resize(what);
  } else if (!values.empty()) {
    values[what % values.size()] = bytes.number();
  }
}

/// Restores the state and goes on with it. Refused at once or later: what must not happen, sanitizers see.
inline void go_on_from(const std::string& policy, const State& state) {
  Controller controller = fuzz_controller(policy);
  try {
    controller.restore(state);
    for (int step = 0; step < 4; ++step) {
      controller.observe(fuzz_telemetry(controller));
    }
  } catch (const std::exception&) {
    return;
  }
  std::int64_t sum = 0;
  for (const std::int64_t batch : controller.decision().batch_sizes) {
    sum += batch;
  }
  ISO_CHECK(sum == controller.roster().global_batch, "a split that does not add up");
}

}  // namespace isochron
