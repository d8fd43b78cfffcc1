// Reads run logs (core/trace/run_log.h) back, a line at a time.
//
// Whatever the bytes, the answer is a record or std::invalid_argument with "FILE:LINE: …". Limits, checked before
// memory is taken: 8 MiB per line (10,000 workers take about 1), three values inside one another. Keys that are not
// known are ignored, since newer versions of a schema may add some. A last line without its line feed is what a crash
// or a writer at work leaves: it counts as not there.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <variant>

#include "isochron/core/trace/run_log.h"

namespace isochron::io {

using RunLogLine = std::variant<RunHeader, StepRecord, EventRecord>;

class RunLogReader {
 public:
  /// `name` is what errors call the stream, which must outlive this.
  RunLogReader(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  /// The next record, or nothing at the end. The first is the header, and there is only one.
  std::optional<RunLogLine> next();

 private:
  bool read_line();

  std::istream& stream_;
  std::string name_;
  std::string line_;
  std::int64_t line_number_ = 0;
};

}  // namespace isochron::io
