// Reads run logs (core/trace/run_log.h) back, a line at a time.
//
// Whatever the bytes, the answer is a record or std::invalid_argument with "FILE:LINE: …". Limits, checked before
// memory is taken: 8 MiB per line (10,000 workers take about 1), three values inside one another. Keys that are not
// known are ignored, since newer versions of a schema may add some. A last line without its line feed is what a crash
// or a writer at work leaves: it counts as not there. A line that does not fit the chain (core/trace/chain.h) is read
// all the same, so that a damaged log can still be drawn; who wants a proof asks broken_line().
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <variant>

#include "isochron/core/trace/chain.h"
#include "isochron/core/trace/run_log.h"

namespace isochron::io {

/// A longer line is refused.
inline constexpr std::size_t kMaxLineBytes = std::size_t{8} << 20U;

using RunLogLine = std::variant<RunHeader, StepRecord, UpdateRecord, EventRecord, EvaluationRecord>;

/// One line, without its line feed. Throws std::invalid_argument that says what is wrong.
[[nodiscard]] RunLogLine parse_run_log_line(const std::string& line);

class RunLogReader {
 public:
  /// `name` is what errors call the stream, which must outlive this.
  RunLogReader(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  /// The next record, or nothing at the end. The first is the header, and there is only one.
  std::optional<RunLogLine> next();

  /// Of the line that next() read last; the first is 1.
  [[nodiscard]] std::int64_t line_number() const { return line_number_; }
  /// Whether the log has a chain: all its lines do, or none does. Old logs have none.
  [[nodiscard]] bool chained() const { return chained_; }
  /// The first line so far that does not fit the chain; 0: all do.
  [[nodiscard]] std::int64_t broken_line() const { return broken_line_; }
  /// At the end: a last line without its line feed was left out.
  [[nodiscard]] bool cut_off() const { return cut_off_; }

 private:
  bool read_line();
  void check_link();

  std::istream& stream_;
  std::string name_;
  std::string line_;
  std::int64_t line_number_ = 0;
  bool chained_ = false;
  std::uint64_t link_ = kFirstLink;
  std::int64_t broken_line_ = 0;
  bool cut_off_ = false;
};

}  // namespace isochron::io
