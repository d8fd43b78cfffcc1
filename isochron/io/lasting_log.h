// A run log that outlasts a disk which takes nothing: a line that cannot be written waits for the next one, and the run
// goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {

class LastingLog {
 public:
  static constexpr std::size_t kMostWaiting = 4096;  // lines that are kept while none can be written

  using Warn = std::function<void(const std::string&)>;

  /// As a RunLogFile, which throws isochron::Error if it cannot be opened.
  LastingLog(const std::filesystem::path& path, const RunHeader& header, RunLogFile::Start start, Warn warn);

  [[nodiscard]] bool continued() const { return file_.continued(); }
  [[nodiscard]] std::int64_t next_step() const { return file_.next_step(); }

  /// Where a line cannot be written, `warn` is told once. When the log goes on, an event "unlogged" after the first
  /// line that waited says how many did, and how many are missing because more had to wait than can be kept.
  void write(const RunLogLine& line);

  /// Writes the event "unlogged" if lines are missing between what the file held when it was opened and `step`: those
  /// that another process had not written when it was lost.
  void note_gap(std::int64_t step);

  /// Tries a last time to write what waits, and tells `warn` how many lines are missing for good.
  void end();

  /// Empty if everything is written; else why not.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  void write_waiting();
  void note_trouble(std::int64_t step);

  RunLogFile file_;
  Warn warn_;
  std::deque<RunLogLine> waiting_;  // to be written
  std::int64_t late_ = 0;           // lines that could not be written at once
  std::int64_t missing_ = 0;        // of them, those that could not be kept
  std::string trouble_;
};

/// 0 of a header.
[[nodiscard]] std::int64_t step_of(const RunLogLine& line);

}  // namespace isochron::io
