// Appends records to a run log (core/trace/run_log.h), one line each, every line with its link (core/trace/chain.h).
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "isochron/core/trace/chain.h"
#include "isochron/core/trace/run_log.h"

namespace isochron::io {

class RunLogWriter {
 public:
  /// `name` is what errors call the stream, which must outlive this. `link` is that of the last line that is there
  /// already; without one, lines get none.
  RunLogWriter(std::ostream& stream, std::string name, std::optional<std::uint64_t> link = kFirstLink)
      : stream_(stream), name_(std::move(name)), link_(link) {}

  /// Each throws isochron::Error naming the file if the line could not be written.
  void write(const RunHeader& header) { write_line(to_json(header)); }
  void write(const StepRecord& record) { write_line(to_json(record)); }
  void write(const UpdateRecord& record) { write_line(to_json(record)); }
  void write(const EventRecord& record) { write_line(to_json(record)); }
  void write(const EvaluationRecord& record) { write_line(to_json(record)); }

 private:
  void write_line(const std::string& line);

  std::ostream& stream_;
  std::string name_;
  std::optional<std::uint64_t> link_;
};

}  // namespace isochron::io
