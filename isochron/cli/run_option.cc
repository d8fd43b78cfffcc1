#include "isochron/cli/run_option.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "isochron/emulate/job_folder.h"

namespace isochron::cli {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> value_of(const std::vector<std::string>& arguments, const std::string& option) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option && i + 1 < arguments.size()) {
      return arguments[i + 1];
    }
    if (arguments[i].starts_with(option + "=")) {
      return arguments[i].substr(option.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string run_log_of(const std::string& run) {
  const bool is_number = !run.empty() && std::ranges::all_of(run, [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!is_number || fs::exists(run)) {
    return run;
  }
  if (const auto folder = emulate::find_job_folder(run)) {
    if (const auto log = value_of(emulate::read_command(*folder), "--log")) {
      std::error_code gone;
      return (fs::read_symlink("/proc/" + run + "/cwd", gone) / *log).string();  // an absolute name stays what it is
    }
  }
  throw std::invalid_argument(
      "RUN is '" + run +
      "'; permitted: a run log, or the process number of an 'isochron launch' whose command has --log");
}

}  // namespace isochron::cli
