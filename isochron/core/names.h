// The names of an enumeration's values, or of any small set of values: one table, from which to_string, parsing, the
// message of a refusal and the list of permitted names follow.
//
//   inline constexpr Names<Sync, 3> kSyncNames{{{Sync::kBsp, "bsp"}, {Sync::kAsp, "asp"}, {Sync::kSsp, "ssp"}}};
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isochron/core/error.h"

namespace isochron {

template <class Value, std::size_t Count>
using Names = std::array<std::pair<Value, std::string_view>, Count>;

template <class Value, std::size_t Count>
std::string_view name_of(const Names<Value, Count>& names, const Value& value) {
  for (const auto& [known, name] : names) {
    if (known == value) {
      return name;
    }
  }
  ISO_CHECK(false, "a value without a name");
  return {};
}

template <class Value, std::size_t Count>
std::vector<std::string> all_names(const Names<Value, Count>& names) {
  std::vector<std::string> all;
  for (const auto& entry : names) {
    all.emplace_back(entry.second);
  }
  return all;
}

/// Throws std::invalid_argument: "OPTION is 'NAME'; permitted: a, b, c".
template <class Value, std::size_t Count>
Value parse_name(const Names<Value, Count>& names, std::string_view option, std::string_view name) {
  for (const auto& [value, known] : names) {
    if (known == name) {
      return value;
    }
  }
  refuse(option, in_quotes(name), joined(all_names(names), ", "));
}

}  // namespace isochron
