// Options whose refusals read "--steps is 'many'; permitted: a whole number from 1 to 1000000000".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "isochron/core/options.h"

namespace isochron::cli {

/// `set` gets the text that was given; a std::invalid_argument of its own gets "NAME is " in front.
CLI::Option* add_value(
    CLI::App& command,
    const std::string& name,
    const std::string& type,
    const std::string& help,
    std::function<void(const std::string&)> set);

/// Where the live page's token may come from: unlike a command line, nobody else can read it.
inline constexpr const char* kTokenVariable = "ISOCHRON_PAGE_TOKEN";

using isochron::kMostCount;

/// A whole number from `low` to `high`. Help shows the default, which is what `value` holds.
CLI::Option* add_whole(
    CLI::App& command,
    const std::string& name,
    std::int64_t& value,
    std::int64_t low,
    std::int64_t high,
    const std::string& help);

/// Throws std::invalid_argument: "'x'; permitted: …".
[[nodiscard]] std::int64_t parse_whole(const std::string& text, std::int64_t low, std::int64_t high);

/// A finite number, 0 or more. Throws std::invalid_argument: "'x'; permitted: …".
[[nodiscard]] double parse_number(const std::string& text);

/// A standard deviation of the logarithm of step times, 0 to 3. Throws likewise.
[[nodiscard]] double parse_noise(const std::string& text);

/// Like parse_number.
CLI::Option* add_number(CLI::App& command, const std::string& name, double& value, const std::string& help);

/// An option of a table, its name spelt with dashes; older names are taken and not shown. A flag is --name and
/// --no-name, a size may have a unit.
CLI::Option* add_option(CLI::App& command, const Option& option);

/// One of `permitted`.
CLI::Option* add_choice(
    CLI::App& command,
    const std::string& name,
    std::string& value,
    const std::vector<std::string>& permitted,
    const std::string& help);

}  // namespace isochron::cli
