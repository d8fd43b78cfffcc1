// Reads the fields of a TOML table into variables, and refuses everything that was not asked for.
//
// Each call names one key; a key that is absent leaves the variable as it is. finish() then refuses the keys that no
// call named. Errors are std::invalid_argument: "FILE:LINE: KEY is VALUE; permitted: …".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

namespace isochron::io {

/// `text` with its control characters replaced, so that an error stays on its line.
[[nodiscard]] std::string one_line(std::string_view text);

class TomlFields {
 public:
  /// `file` and `table` must outlive this.
  TomlFields(const std::string& file, const toml::table& table) : file_(file), table_(table) {}

  /// Any finite number, whole or not.
  void number(std::string_view key, double& value);
  void integer(std::string_view key, std::int64_t& value);
  /// At most 1000 bytes, and no control characters: names are shown to people, and go to workers in their environment,
  /// where a zero would begin another variable.
  void text(std::string_view key, std::string& value);
  void flag(std::string_view key, bool& value);
  /// Text that `parse` turns into a value; the std::invalid_argument it throws gets the place and the key in front.
  template <class Parse, class Value>
  void parsed(std::string_view key, Parse parse, Value& value);
  /// A sub-table, or nullptr.
  const toml::table* table(std::string_view key);
  /// The tables of a [[key]] list.
  std::vector<const toml::table*> tables(std::string_view key);
  /// The node itself, or nullptr: for keys that may hold several types.
  const toml::node* node(std::string_view key);

  void finish() const;

  /// Throws at the line of `key`, or of the table if there is no such key.
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view permitted) const;
  /// Throws at the line of the first key that `message` names as "KEY is", or of the table if it names none.
  [[noreturn]] void fail_where_named(const std::string& message) const;

 private:
  const std::string& file_;
  const toml::table& table_;
  std::vector<std::string> known_;
};

template <class Parse, class Value>
void TomlFields::parsed(std::string_view key, Parse parse, Value& value) {
  if (node(key) == nullptr) {
    return;
  }
  std::string written;
  text(key, written);
  try {
    value = parse(written);
  } catch (const std::invalid_argument& error) {
    fail(key, std::string(key) + " is " + error.what());
  }
}

}  // namespace isochron::io
