#include "isochron/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"
#include "isochron/io/units.h"
#include "isochron/sim/cluster.h"

namespace isochron::cli {
namespace {

[[noreturn]] void throw_refusal(const std::string& text, const std::string& permitted) {
  throw std::invalid_argument("'" + text + "'; permitted: " + permitted);
}

/// False unless all of `text` is a number that fits.
template <class Number>
bool parse(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end;
}

std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string type_name(const Option& option) {
  switch (option.type) {
    case Option::Type::kInteger:
      return "N";
    case Option::Type::kNumber:
      return "X";
    case Option::Type::kChoice:
      return joined(option.choices, "|");
    case Option::Type::kSize:
      return "SIZE";
    case Option::Type::kFlag:
    case Option::Type::kText:
      break;
  }
  return option.placeholder;
}

/// As the option takes it.
std::string plain_text(const Option& option, const std::string& text) {
  constexpr double kMostBytes = 1e18;
  return option.type == Option::Type::kSize
             ? std::to_string(static_cast<std::int64_t>(std::min(io::parse_size(text), kMostBytes)))
             : text;
}

}  // namespace

CLI::Option* add_option(CLI::App& command, const Option& option) {
  const std::string name = dashed(option.name);
  if (option.type == Option::Type::kFlag) {
    const auto set = [set = option.set](std::int64_t count) { (void)set(count > 0 ? "true" : "false"); };
    return command.add_flag_function("--" + name + ",!--no-" + name, set, option.meaning)
        ->default_str(option.standard == "true" ? "on" : "")
        ->group(option.group);
  }
  std::string names = "--" + name;
  for (const std::string& alias : option.aliases) {
    names += ",--" + dashed(alias);
  }
  const auto set = [option, name](const std::string& text) {
    try {
      if (!option.set(plain_text(option, text))) {
        throw_refusal(text, option.permitted);
      }
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("--" + name + " is " + error.what());
    }
  };
  return command.add_option_function<std::string>(names, set, option.meaning)
      ->type_name(type_name(option))
      ->default_str(option.standard)
      ->group(option.group);
}

CLI::Option* add_value(
    CLI::App& command,
    const std::string& name,
    const std::string& type,
    const std::string& help,
    std::function<void(const std::string&)> set) {
  const auto named = [name, set = std::move(set)](const std::string& text) {
    try {
      set(text);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(name + " is " + error.what());
    }
  };
  return command.add_option_function<std::string>(name, named, help)->type_name(type);
}

CLI::Option* add_whole(
    CLI::App& command,
    const std::string& name,
    std::int64_t& value,
    std::int64_t low,
    std::int64_t high,
    const std::string& help) {
  const auto set = [&value, low, high](const std::string& text) { value = parse_whole(text, low, high); };
  return add_value(command, name, "N", help, set)->default_str(std::to_string(value));
}

std::int64_t parse_whole(const std::string& text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  if (!parse(text, value) || value < low || value > high) {
    throw_refusal(text, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

double parse_number(const std::string& text) {
  double value = 0.0;
  if (!parse(text, value) || !std::isfinite(value) || value < 0.0) {
    throw_refusal(text, "a finite number, 0 or more");
  }
  return value;
}

double parse_noise(const std::string& text) {
  double value = 0.0;
  if (!parse(text, value) || !(value >= 0.0 && value <= sim::kMostNoise)) {
    throw_refusal(text, "0 to 3");
  }
  return value;
}

CLI::Option* add_number(CLI::App& command, const std::string& name, double& value, const std::string& help) {
  const auto set = [&value](const std::string& text) { value = parse_number(text); };
  return add_value(command, name, "X", help, set)->default_str(json_number(value));
}

CLI::Option* add_choice(
    CLI::App& command,
    const std::string& name,
    std::string& value,
    const std::vector<std::string>& permitted,
    const std::string& help) {
  const auto set = [&value, permitted](const std::string& text) {
    if (std::ranges::find(permitted, text) == permitted.end()) {
      throw_refusal(text, CLI::detail::join(permitted, ", "));
    }
    value = text;
  };
  return add_value(command, name, CLI::detail::join(permitted, "|"), help, set)->default_str(value);
}

}  // namespace isochron::cli
