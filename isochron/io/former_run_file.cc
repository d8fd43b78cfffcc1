#include "isochron/io/former_run_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "isochron/core/error.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {

std::vector<FormerSpeed> read_former_run(const std::filesystem::path& path) {
  const auto refuse_file = [&path](const std::string& why) {
    isochron::refuse(
        "start_from", in_quotes(path.string()), "a run log of an earlier run of these workers (" + why + ")");
  };
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    refuse_file(file ? "it is a folder" : std::strerror(errno));
  }
  FormerRun run;
  try {
    RunLogReader reader(file, path.string());
    while (const std::optional<RunLogLine> line = reader.next()) {
      std::visit([&run](const auto& record) { run.add(record); }, *line);
    }
  } catch (const std::invalid_argument& error) {
    refuse_file(error.what());
  }
  return run.speeds();
}

void add_former_run(Introduction& introduction, const JobSettings& settings, bool first) {
  if (!first || settings.start_from.empty()) {
    return;
  }
  try {
    introduction.former = read_former_run(settings.start_from);
  } catch (const std::invalid_argument& error) {
    introduction.trouble = error.what();
  }
}

}  // namespace isochron::io
