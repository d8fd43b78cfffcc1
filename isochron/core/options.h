// Options by name, of whatever is chosen by name: "omnilearn:dead-band=0.1,ewma=0.2" for a policy.
//
// An Option is one of them, bound to the variable that holds its value: it parses, checks, shows and documents it. A
// policy names its options once, in a function that walks over an OptionTable, so help and behaviour agree. Models and
// optimizers do the same; the options of a job are a list of Option (job_settings.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isochron/core/names.h"

namespace isochron {

/// The largest count that any option takes.
inline constexpr std::int64_t kMostCount = 1'000'000'000;

struct Option {
  enum class Type : std::uint8_t { kInteger, kNumber, kFlag, kChoice, kText, kSize };

  std::string name;  // words_with_underscores; a command line has dashes instead
  Type type = Type::kText;
  std::string permitted;             // in words, for messages
  std::vector<std::string> choices;  // of kChoice
  std::string standard;              // the default: what the variable holds when the option is made
  std::string meaning;               // one sentence
  std::string group;                 // the heading in help
  std::vector<std::string> aliases;  // older names that a command line still takes
  std::string placeholder;           // of kText: what its value looks like

  std::function<bool(std::string_view text)> set;  // false if the text is not permitted: nothing has changed then
  std::function<std::string()> get;                // as a text that set() takes
};

/// The variable must outlive the calls of set() and get().
Option integer_option(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning);
Option integer_option(std::string_view name, std::uint64_t& value, std::string_view meaning);  // 0 to 2^63 - 1
/// A finite number.
Option number_option(std::string_view name, double& value, double low, double high, std::string_view meaning);
/// "true" or "false".
Option flag_option(std::string_view name, bool& value, std::string_view meaning);
Option text_option(std::string_view name, std::string& value, std::string_view placeholder, std::string_view meaning);
Option choice_option(
    std::string_view name, std::string& value, const std::vector<std::string>& permitted, std::string_view meaning);
/// Bytes; whoever reads it from people takes units, too.
Option size_option(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning);

/// A choice of something that has Names.
template <class Value, std::size_t Count>
Option choice_option(std::string_view name, Value& value, const Names<Value, Count>& names, std::string_view meaning) {
  Option option;
  option.name = name;
  option.type = Option::Type::kChoice;
  option.choices = all_names(names);
  option.permitted = joined(option.choices, ", ");
  option.meaning = meaning;
  option.get = [&value, names] { return std::string(name_of(names, value)); };
  option.set = [&value, names](std::string_view text) {
    for (const auto& [known, spelt] : names) {
      if (spelt == text) {
        value = known;
        return true;
      }
    }
    return false;
  };
  option.standard = option.get();
  return option;
}

/// "NAME:key=value,key=value", taken apart but not yet checked against the options of what it names.
struct Specification {
  std::string kind;  // of thing: "policy"; messages begin with it
  std::string name;
  std::map<std::string, std::string, std::less<>> options;

  /// Throws std::invalid_argument naming the part that is not `key=value`.
  static Specification parse(std::string_view kind, std::string_view text);
};

class OptionTable {
 public:
  struct Row {
    std::string name;
    std::string meaning;
    std::string permitted;
    std::string standard;  // the default
  };

  /// Reads the options of `spec`; each call below throws std::invalid_argument on a value that is not permitted.
  explicit OptionTable(Specification spec) : spec_(std::move(spec)) {}

  void number(std::string_view name, double& value, double low, double high, std::string_view meaning);
  void integer(
      std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning);
  /// on | off
  void flag(std::string_view name, bool& value, std::string_view meaning);
  void choice(
      std::string_view name, std::string& value, const std::vector<std::string>& permitted, std::string_view meaning);
  /// Positive numbers with slashes between: 1/2/4. Empty by default.
  void numbers(std::string_view name, std::vector<double>& values, std::string_view meaning);

  /// Throws std::invalid_argument if the specification holds an option that no call above named.
  void finish() const;

  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  void read(const Option& option, std::string permitted);
  [[noreturn]] void refuse_value(const Row& row, std::string_view value) const;

  Specification spec_;
  std::vector<Row> rows_;
};

}  // namespace isochron
