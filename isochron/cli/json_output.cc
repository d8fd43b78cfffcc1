#include "isochron/cli/json_output.h"

#include <algorithm>
#include <iostream>
#include <stdexcept>

#include "isochron/core/error.h"

namespace isochron::cli {

std::unique_ptr<io::OutputFile> open_output(const std::string& option, const std::string& path) {
  try {
    return std::make_unique<io::OutputFile>(path);
  } catch (const Error& error) {
    throw std::invalid_argument(
        option + " is '" + path + "'; permitted: a file that can be written (" + error.what() + ")");
  }
}

void check_distinct_outputs(std::vector<std::string> files) {
  std::erase(files, "");
  std::ranges::sort(files);
  if (const auto twin = std::ranges::adjacent_find(files); twin != files.end()) {
    throw std::invalid_argument("'" + *twin + "' is given for two outputs; permitted: a file of its own for each");
  }
}

void JsonOutput::add_option(CLI::App& command) {
  command.add_option("--json", target_, "Write the results as JSON; - for standard output, and nothing else there")
      ->type_name("FILE|-")
      ->group("Output");
}

void JsonOutput::open() {
  if (!target_.empty() && !takes_standard_output()) {
    file_ = open_output("--json", target_);
  }
}

void JsonOutput::write(
    const std::string& command, const nlohmann::ordered_json& details, const nlohmann::ordered_json& results) {
  if (target_.empty()) {
    return;
  }
  nlohmann::ordered_json document{{"command", command}, {"version", ISOCHRON_VERSION}};
  for (const auto& [key, value] : details.items()) {
    document[key] = value;
  }
  document["results"] = results;
  std::ostream& stream = file_ ? file_->stream() : std::cout;
  stream << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  if (file_) {
    file_->commit();
  }
}

}  // namespace isochron::cli
