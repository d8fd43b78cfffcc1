// The last lines of a run's log, kept by every worker: when the first one is lost, another goes on with the log and
// knows what was not written yet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "isochron/io/lasting_log.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::worker {

class History {
 public:
  static constexpr std::size_t kMost = io::LastingLog::kMostWaiting;  // what a full disk may have kept from the log

  void add(io::RunLogLine line) {
    lines_.push_back(std::move(line));
    ++total_;
    if (lines_.size() > kMost) {
      lines_.pop_front();
    }
  }

  /// Calls `action` for every line since the first `known` ones that is still there; returns how many are known now.
  std::int64_t for_each_since(std::int64_t known, const std::function<void(const io::RunLogLine&)>& action) const {
    const auto kept = static_cast<std::int64_t>(lines_.size());
    for (std::int64_t i = std::max<std::int64_t>(known - (total_ - kept), 0); i < kept; ++i) {
      action(lines_[static_cast<std::size_t>(i)]);
    }
    return total_;
  }

 private:
  std::deque<io::RunLogLine> lines_;
  std::int64_t total_ = 0;
};

}  // namespace isochron::worker
