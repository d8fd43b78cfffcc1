// Options by name, of whatever is chosen by name: "omnilearn:dead-band=0.1,ewma=0.2" for a policy.
//
// A policy names its options once, in a function that walks over an OptionTable; the same walk parses, checks and
// documents them, so help and behaviour agree. Models and optimizers do the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isochron {

/// "NAME:key=value,key=value", taken apart but not yet checked against the options of what it names.
struct Specification {
  std::string kind;  // of thing: "policy"; messages begin with it
  std::string name;
  std::map<std::string, std::string, std::less<>> options;

  /// Throws std::invalid_argument naming the piece that is not `key=value`.
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
  const std::string* take(std::string_view name, std::string_view meaning, std::string permitted, std::string standard);
  [[noreturn]] void refuse(const Row& row, std::string_view value) const;

  Specification spec_;
  std::vector<Row> rows_;
};

}  // namespace isochron
