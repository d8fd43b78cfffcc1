// The run log of a training run, on disk line by line, so that it can be followed and survives whatever ends the run.
#pragma once

#include <fstream>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/io/run_log_writer.h"

namespace isochron::worker {

class LiveLog {
 public:
  /// Begins the file `path`, given with --log. One that is there already is overwritten, unless the run goes on at a
  /// later step than 0: then its steps are added, after an event "resume". Throws std::invalid_argument naming the file
  /// if it cannot be written.
  LiveLog(const std::string& path, const RunHeader& header, std::int64_t first_step);

  /// Throws isochron::Error.
  void write(const StepRecord& record);

 private:
  std::ofstream stream_;
  io::RunLogWriter writer_;
};

}  // namespace isochron::worker
