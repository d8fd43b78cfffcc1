#include "isochron/io/step_line.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace isochron::io {
namespace {

constexpr std::int64_t kMaxInteger = std::int64_t{1} << 53U;

/// Goes through a line; each function says whether what it expects comes next, and moves beyond it if so.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool literal(std::string_view expected) {
    if (!rest_.starts_with(expected)) {
      return false;
    }
    rest_.remove_prefix(expected.size());
    return true;
  }

  /// ,"NAME":
  bool key(std::string_view name) {
    const std::string_view before = rest_;
    if (literal(",\"") && literal(name) && literal("\":")) {
      return true;
    }
    rest_ = before;
    return false;
  }

  bool value(double& number) {
    if (literal("null")) {
      number = kUnknown;
      return true;
    }
    return digits(number);
  }
  bool value(std::uint64_t& number) { return digits(number); }
  bool value(std::int64_t& number) { return digits(number) && number >= 0 && number <= kMaxInteger; }
  bool value(bool& flag) {
    flag = literal("true");
    return flag || literal("false");
  }
  /// Plain text: nothing escaped, nothing beyond ASCII.
  bool value(std::string& text) {
    if (!literal("\"")) {
      return false;
    }
    const auto is_plain = [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; };
    const auto end = std::ranges::find_if_not(rest_, is_plain);
    text.assign(rest_.begin(), end);
    rest_.remove_prefix(text.size());
    return literal("\"");
  }
  bool value(Reason& reason) {
    std::string name;
    if (!value(name)) {
      return false;
    }
    for (int i = 0; i <= static_cast<int>(kLastReason); ++i) {
      reason = static_cast<Reason>(i);
      if (to_string(reason) == name) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// from_chars takes more than JSON does: infinities, zeros in front, a point at the end.
  template <class Number>
  bool digits(Number& number) {
    const char* const begin = rest_.data();
    const char* const end = begin + rest_.size();
    const char* const first = begin != end && *begin == '-' ? begin + 1 : begin;
    if (first == end || !is_digit(*first) || (*first == '0' && first + 1 != end && is_digit(first[1]))) {
      return false;
    }
    const auto [after, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || !is_digit(after[-1])) {
      return false;
    }
    rest_.remove_prefix(static_cast<std::size_t>(after - begin));
    return true;
  }

  std::string_view rest_;
};

template <class Value>
bool field(Cursor& cursor, std::string_view key, Value& value) {
  return cursor.literal(key) && cursor.value(value);
}

template <class Value>
bool optional_field(Cursor& cursor, std::string_view key, Value& value) {
  return !cursor.literal(key) || cursor.value(value);
}

/// One worker for every entry of the column that comes next.
void make_workers(const Cursor& cursor, std::vector<WorkerStep>& workers) {
  const std::string_view list = cursor.rest().substr(0, cursor.rest().find(']'));
  workers.resize(
      static_cast<std::size_t>(std::ranges::count(list, ',')));  // the one before the key counts for the last
}

template <class Value>
bool read_column(Cursor& cursor, const WorkerColumn<Value>& column, std::vector<WorkerStep>& workers) {
  if (!cursor.key(column.name)) {
    return column.optional;
  }
  for (WorkerStep& worker : workers) {
    if (!cursor.literal(&worker == workers.data() ? "[" : ",") || !cursor.value(column.of(worker))) {
      return false;
    }
  }
  return cursor.literal("]");
}

/// Nothing more, or the line's link.
bool read_end(Cursor& cursor) {
  std::string link;
  return optional_field(cursor, ",\"chain\":", link) && cursor.rest() == "}";
}

}  // namespace

bool read_step_line(std::string_view line, StepRecord& record, std::int64_t& staleness) {
  Cursor cursor(line);
  record = {};
  staleness = -1;
  std::vector<WorkerStep>& workers = record.workers;
  if (!field(cursor, R"({"type":"step","step":)", record.step) ||
      !optional_field(cursor, ",\"epoch\":", record.epoch) ||
      !optional_field(cursor, ",\"position\":", record.position) ||
      !field(cursor, ",\"start\":", record.start_seconds) || !field(cursor, ",\"seconds\":", record.seconds)) {
    return false;
  }
  make_workers(cursor, workers);
  return std::apply(
             [&](const auto&... column) { return (read_column(cursor, column, workers) && ...); }, kWorkerColumns) &&
         field(cursor, ",\"learning_rate_factor\":", record.learning_rate_factor) &&
         field(cursor, ",\"changed\":", record.changed) && field(cursor, ",\"reason\":", record.reason) &&
         optional_field(cursor, ",\"words\":", record.words) && optional_field(cursor, ",\"loss\":", record.loss) &&
         optional_field(cursor, ",\"staleness\":", staleness) && read_end(cursor);
}

}  // namespace isochron::io
