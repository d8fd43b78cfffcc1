// Reads a run log that may still be growing: what is there now, then what comes.
//
// Limits and refusals are those of RunLogReader, whose chain is not checked here: a damaged log can still be looked at.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "isochron/io/run_log_reader.h"

namespace isochron::io {

class RunLogFollower {
 public:
  /// Throws std::invalid_argument naming the file if it cannot be read.
  explicit RunLogFollower(std::filesystem::path path);
  RunLogFollower(const RunLogFollower&) = delete;
  RunLogFollower& operator=(const RunLogFollower&) = delete;
  ~RunLogFollower();

  /// Hands every whole line that was not there before to `take` and says how many there were. Throws
  /// std::invalid_argument with "FILE:LINE: …", and isochron::Error if the file became shorter: another run has it now.
  std::size_t poll(const std::function<void(RunLogLine&&)>& take);

 private:
  [[nodiscard]] std::size_t take_lines(const std::function<void(RunLogLine&&)>& take);
  void take_line(std::size_t from, std::size_t to, const std::function<void(RunLogLine&&)>& take);
  void check_length() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t offset_ = 0;   // of what was read
  std::string buffer_;        // from the start of the first line that is not whole
  std::size_t searched_ = 0;  // of the buffer, for the end of that line
  std::string line_;
  std::int64_t line_number_ = 0;
};

}  // namespace isochron::io
