// The run log of a training run, as --log names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::worker {

class LiveLog {
 public:
  static constexpr std::size_t kMostWaiting = 4096;  // lines that are kept while none can be written

  enum class Begin : std::uint8_t {
    kRun,       // a run, or the continuation of one that was saved
    kTakeOver,  // of the log of a worker that is lost
  };
  using Warn = std::function<void(const std::string&)>;

  /// A file that is there already is overwritten, unless the run goes on at a later step than 0 (then its steps are
  /// added, after an event "resume") or the log is taken over. Throws std::invalid_argument naming the file if it
  /// cannot be written.
  LiveLog(
      const std::string& path,
      const RunHeader& header,
      std::int64_t first_step,
      Begin begin = Begin::kRun,
      Warn warn = [](const std::string&) {});

  /// Lines of a log that was taken over are left out if they are there already. A line that cannot be written (a full
  /// disk) waits for the next one, and `warn` is told. When the log goes on, an event "unlogged" says for how many
  /// lines it could not, and how many of them are missing because more had to wait than can be kept.
  void write(const io::RunLogLine& line);

  /// Empty if everything is written; else why not.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  void write_waiting();

  io::RunLogFile file_;
  Warn warn_;
  std::int64_t next_step_ = 0;          // of a log that was taken over: what it has not
  std::deque<io::RunLogLine> waiting_;  // to be written
  std::int64_t late_ = 0;               // lines that could not be written at once
  std::int64_t missing_ = 0;            // of them, those that could not be kept
  std::string trouble_;
};

}  // namespace isochron::worker
