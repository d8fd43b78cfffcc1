// The run log of a training run, as --log names it.
#pragma once

#include <cstdint>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/io/lasting_log.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::worker {

class LiveLog {
 public:
  enum class Begin : std::uint8_t {
    kRun,       // a run, or the continuation of one that was saved
    kTakeOver,  // of the log of a worker that is lost
  };
  using Warn = io::LastingLog::Warn;

  /// A log that is there already is set aside, unless the run goes on at a later step than 0 (then its steps are
  /// added, after an event "resume") or the log is taken over. Throws std::invalid_argument naming the file if it
  /// cannot be written.
  LiveLog(
      const std::string& path,
      const RunHeader& header,
      std::int64_t first_step,
      Begin begin = Begin::kRun,
      Warn warn = [](const std::string&) {});

  /// Lines of a log that was taken over are left out if they are there already; if there are none of the steps that
  /// follow its last one, an event "unlogged" says which are missing. A line that cannot be written waits.
  void write(const io::RunLogLine& line);

  /// Says how many lines are missing for good, if any.
  void end() { log_.end(); }

  /// Empty if everything is written; else why not.
  [[nodiscard]] const std::string& trouble() const { return log_.trouble(); }

 private:
  io::LastingLog log_;
  std::int64_t next_step_ = 0;  // of a log that was taken over: what it has not
  bool is_taken_over_ = false;  // and nothing has been added yet
};

}  // namespace isochron::worker
