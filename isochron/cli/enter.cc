#include "isochron/emulate/enter.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "isochron/cli/commands.h"

namespace isochron::cli {
namespace {

struct Request {
  std::filesystem::path folder;
  std::vector<std::string> words;
};

}  // namespace

void add_enter(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("enter", "Become a worker of 'isochron launch'")->group("");
  const auto request = std::make_shared<Request>();
  command->add_option("FOLDER", request->folder, "The launcher's folder")->required();
  command->add_option("COMMAND", request->words, "The worker's program and its arguments")->required();
  command->final_callback([request] { throw CLI::RuntimeError(emulate::enter(request->folder, request->words)); });
}

}  // namespace isochron::cli
