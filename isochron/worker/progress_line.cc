#include "isochron/worker/progress_line.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "isochron/cli/table.h"

namespace isochron::worker {
namespace {

using cli::fixed;

/// "1:05", "2:03:04"
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  const auto two_digits = [](std::int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); };
  const std::string tail = two_digits(whole % 60);
  const std::int64_t minutes = whole / 60;
  return minutes < 60 ? std::to_string(minutes) + ":" + tail
                      : std::to_string(minutes / 60) + ":" + two_digits(minutes % 60) + ":" + tail;
}

/// Those of a large job are more than a line holds.
std::string batch_text(const std::vector<std::int64_t>& sizes) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t k = 0; k < std::min(kMost, sizes.size()); ++k) {
    text += " " + std::to_string(sizes[k]);
  }
  return text + (sizes.size() > kMost ? " ..." : "");
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : std::size_t{120};
}

}  // namespace

std::string progress_text(const ShownStep& record, const RunLength& length, double step_seconds) {
  const auto samples =
      static_cast<double>(std::accumulate(record.batch_sizes.begin(), record.batch_sizes.end(), std::int64_t{0}));
  const std::int64_t done = record.step + record.steps;
  const std::int64_t epochs = (length.total_steps + length.steps_per_epoch - 1) / length.steps_per_epoch;
  return "epoch " + std::to_string(record.step / length.steps_per_epoch + 1) + "/" + std::to_string(epochs) +
         "  step " + std::to_string(done) + "/" + std::to_string(length.total_steps) + "  loss " +
         fixed(record.loss, 4) + "  " + fixed(samples / static_cast<double>(record.steps) / step_seconds, 0) +
         " samples/s  batches" + batch_text(record.batch_sizes) + "  ETA " +
         clock_text(static_cast<double>(length.total_steps - done) * step_seconds);
}

void ProgressLine::show(const ShownStep& record) {
  constexpr double kWeightOfNew = 0.1;
  const double seconds = record.seconds / static_cast<double>(record.steps);
  step_seconds_ += (step_seconds_ > 0.0 ? kWeightOfNew : 1.0) * (seconds - step_seconds_);
  if (style_ == ProgressStyle::kOff) {
    return;
  }
  const bool rewrite = style_ == ProgressStyle::kLine;
  const auto interval = rewrite ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10'000);
  const auto now = Clock::now();
  if (now - shown_at_ < interval && record.step + record.steps != length_.total_steps) {
    return;
  }
  shown_at_ = now;
  const std::string text = progress_text(record, length_, step_seconds_);
  if (rewrite) {
    constexpr std::string_view kEraseToEnd = "\x1b[K";
    stream_ << '\r' << text.substr(0, terminal_columns() - 1) << kEraseToEnd << std::flush;
    line_is_open_ = true;
  } else {
    stream_ << text << std::endl;  // NOLINT(performance-avoid-endl): somebody may be watching
  }
}

void ProgressLine::say(const std::string& line) {
  finish();
  stream_ << line << std::endl;  // NOLINT(performance-avoid-endl): somebody may be watching
}

void ProgressLine::finish() {
  if (line_is_open_) {
    stream_ << '\n';
    line_is_open_ = false;
  }
}

}  // namespace isochron::worker
