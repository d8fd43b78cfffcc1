#include "isochron/emulate/enter.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isochron/cli/commands.h"

namespace isochron::cli {
namespace {

struct EnterRequest {
  std::filesystem::path folder;
  std::optional<std::size_t> worker;
  std::vector<std::string> arguments;
};

}  // namespace

void add_enter(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("enter", "Become a worker of 'isochron launch'")->group("");
  const auto request = std::make_shared<EnterRequest>();
  command->add_option("FOLDER", request->folder, "The launcher's folder")->required();
  command->add_option("--worker", request->worker, "Its number, if that is not its rank");
  command->add_option("COMMAND", request->arguments, "The worker's program and its arguments")->required();
  command->final_callback(
      [request] { throw CLI::RuntimeError(emulate::enter(request->folder, request->worker, request->arguments)); });
}

}  // namespace isochron::cli
