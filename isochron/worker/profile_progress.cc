#include "isochron/worker/profile_progress.h"

#include <algorithm>
#include <cmath>

#include "isochron/cli/table.h"

namespace isochron::worker {

std::string profile_line(std::int64_t batch, double seconds, double done, double left_seconds, int width) {
  const auto full = std::clamp(static_cast<int>(std::lround(done * width)), 0, width);
  std::string text;
  if (width > 0) {
    text = "[" + std::string(static_cast<std::size_t>(full), '#') +
           std::string(static_cast<std::size_t>(width - full), '.') + "] ";
  }
  return text + "batch " + std::to_string(batch) + ": " + cli::fixed(1e3 * seconds, 1) + " ms, " +
         cli::fixed(left_seconds, 0) + " s left";
}

void ProfileProgress::show(std::int64_t batch, double seconds, double done, double left_seconds) {
  constexpr int kWidth = 30;
  if (style_ == ProgressStyle::kLine) {
    constexpr std::string_view kEraseToEnd = "\x1b[K";
    stream_ << '\r' << profile_line(batch, seconds, done, left_seconds, kWidth) << kEraseToEnd << std::flush;
    line_is_open_ = true;
  } else if (style_ == ProgressStyle::kPlain) {
    stream_ << profile_line(batch, seconds, done, left_seconds, 0) << '\n' << std::flush;
  }
}

void ProfileProgress::finish() {
  if (line_is_open_) {
    stream_ << '\n';
    line_is_open_ = false;
  }
}

}  // namespace isochron::worker
