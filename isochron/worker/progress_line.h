// Shows how far a training run is: one line that is rewritten on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace isochron::worker {

enum class ProgressStyle : std::uint8_t {
  kLine,   // rewritten, up to ten times a second
  kPlain,  // a line every ten seconds
  kOff,
};

struct RunLength {
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 0;  // 1 or more
};

/// What is shown of a step.
struct ShownStep {
  std::int64_t step = 0;
  std::int64_t steps = 1;  // of a round; `step` is its first
  double seconds = 0.0;
  double loss = 0.0;
  std::vector<std::int64_t> batch_sizes;
};

/// "epoch 2/3  step 120/300  loss 0.4321  1234 samples/s  batches 12 13 103  ETA 1:05". The speed is that of steps of
/// `step_seconds`.
[[nodiscard]] std::string progress_text(const ShownStep& record, const RunLength& length, double step_seconds);

class ProgressLine {
 public:
  /// `stream` must outlive this.
  ProgressLine(std::ostream& stream, ProgressStyle style, const RunLength& length)
      : stream_(stream), style_(style), length_(length) {}

  /// After every step.
  void show(const ShownStep& record);
  /// A line that stays, in every style.
  void say(const std::string& line);
  /// The line is over.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& stream_;
  ProgressStyle style_;
  RunLength length_;
  double step_seconds_ = 0.0;  // smoothed; 0: no step yet
  Clock::time_point shown_at_ = Clock::now();
  bool line_is_open_ = false;
};

}  // namespace isochron::worker
