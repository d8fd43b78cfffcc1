// Shows how far a profile is: a bar that is rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "isochron/worker/progress_line.h"

namespace isochron::worker {

/// "[######....] batch 64: 12.3 ms, 41 s left"; a width of 0 leaves the bar out.
[[nodiscard]] std::string profile_line(std::int64_t batch, double seconds, double done, double left_seconds, int width);

class ProfileProgress {
 public:
  /// `stream` must outlive this.
  ProfileProgress(std::ostream& stream, ProgressStyle style) : stream_(stream), style_(style) {}

  void show(std::int64_t batch, double seconds, double done, double left_seconds);
  /// The line is over.
  void finish();

 private:
  std::ostream& stream_;
  ProgressStyle style_;
  bool line_is_open_ = false;
};

}  // namespace isochron::worker
