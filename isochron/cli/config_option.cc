#include "isochron/cli/config_option.h"

#include <stdexcept>

#include "isochron/core/error.h"
#include "isochron/io/config_file.h"

namespace isochron::cli {
namespace {

constexpr const char* kName = "config";

std::vector<io::ConfigEntry> read(const std::string& file) {
  try {
    return io::read_config_file(file);
  } catch (const Error& error) {
    throw std::invalid_argument(
        "--config is '" + file + "'; permitted: a file that can be read (" + std::string(error.what()) + ")");
  }
}

bool may_be_key(const CLI::Option& option) {
  return !option.get_lnames().empty() && option.get_lnames().front() != kName && option.get_configurable();
}

std::string permitted_keys(const CLI::App& command) {
  std::string keys;
  for (const CLI::Option* const option : command.get_options()) {
    if (may_be_key(*option)) {
      keys += (keys.empty() ? "" : ", ") + option->get_lnames().front();
    }
  }
  return keys;
}

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

void set(CLI::Option& option, const io::ConfigEntry& entry) {
  if (is_flag(option) && entry.value != "true" && entry.value != "false") {
    refuse(entry.key, in_quotes(entry.value), "true or false");
  }
  // --no-NAME = true is NAME = false.
  option.add_result(is_flag(option) ? option.get_flag_value(entry.key, entry.value) : entry.value);
  option.run_callback();
}

}  // namespace

void add_config_option(CLI::App& command, std::string& file) {
  command.add_option(std::string("--") + kName, file, "Options from a file, one per line: global-batch = 256")
      ->type_name("FILE.toml");
}

void apply_config(CLI::App& command, const std::string& file) {
  if (file.empty()) {
    return;
  }
  for (const io::ConfigEntry& entry : read(file)) {
    CLI::Option* const option = command.get_option_no_throw("--" + entry.key);
    if (option == nullptr || !may_be_key(*option)) {
      throw std::invalid_argument(
          entry.place + "unknown key '" + entry.key + "'; permitted: " + permitted_keys(command));
    }
    if (option->count() > 0) {
      continue;
    }
    try {
      set(*option, entry);
    } catch (const std::exception& refused) {  // of CLI11, or of the option's own check
      throw std::invalid_argument(entry.place + refused.what());
    }
  }
}

}  // namespace isochron::cli
