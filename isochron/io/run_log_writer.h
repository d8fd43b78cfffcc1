// Appends records to a run log (core/trace/run_log.h), one line each.
#pragma once

#include <ostream>
#include <string>

#include "isochron/core/trace/run_log.h"

namespace isochron::io {

class RunLogWriter {
 public:
  /// `name` is what errors call the stream, which must outlive this.
  RunLogWriter(std::ostream& stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  /// Each throws isochron::Error naming the file if the line could not be written.
  void write(const RunHeader& header) { write_line(to_json(header)); }
  void write(const StepRecord& record) { write_line(to_json(record)); }
  void write(const EventRecord& record) { write_line(to_json(record)); }

 private:
  void write_line(const std::string& line);

  std::ostream& stream_;
  std::string name_;
};

}  // namespace isochron::io
