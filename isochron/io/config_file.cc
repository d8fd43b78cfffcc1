#include "isochron/io/config_file.h"

#include <optional>
#include <stdexcept>

#include "isochron/core/trace/json.h"
#include "isochron/core/trace/utf8.h"
#include "isochron/io/toml_fields.h"
#include "isochron/io/toml_file.h"

namespace isochron::io {
namespace {

/// Nothing if it cannot stand on a command line.
std::optional<std::string> as_text(const toml::node& node) {
  if (node.is_string()) {
    return node.as_string()->get();
  }
  if (node.is_integer()) {
    return std::to_string(node.as_integer()->get());
  }
  if (node.is_floating_point()) {
    return json_number(node.as_floating_point()->get());
  }
  if (node.is_boolean()) {
    return node.as_boolean()->get() ? "true" : "false";
  }
  return std::nullopt;
}

}  // namespace

std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& file) {
  std::vector<ConfigEntry> entries;
  for (const auto& [key, node] : parse_toml(text, file)) {
    ConfigEntry entry{.key = one_line(to_utf8(key.str()))};
    entry.place = file + ":" + std::to_string(node.source().begin.line) + ": ";
    if (const auto value = as_text(node)) {
      entry.value = *value;
    } else {
      throw std::invalid_argument(
          entry.place + entry.key + " is no single value; permitted: text in quotes, a number, true or false");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path) {
  return parse_config(read_toml_text(path, "configuration file"), path.string());
}

}  // namespace isochron::io
