#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/ledger_report.h"
#include "isochron/cli/program.h"

namespace isochron::cli {
namespace {

struct LedgerRequest {
  std::string log;
  JsonOutput output;
};

LedgerReport read_log(const std::string& path) {
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(path, none);
  errno = is_folder ? EISDIR : 0;
  std::ifstream stream;
  if (!is_folder) {
    stream.open(path, std::ios::binary);
  }
  if (!stream.is_open()) {
    throw std::invalid_argument("cannot read '" + path + "': " + std::strerror(errno));
  }
  return read_ledger(stream, path);
}

void run_ledger(LedgerRequest& request) {
  check_distinct_outputs({request.output.target(), request.log});
  request.output.open();
  const LedgerReport report = read_log(request.log);
  if (!request.output.takes_standard_output()) {
    std::cout << to_text(report);
  }
  nlohmann::ordered_json details{{"log", request.log}};
  details.update(details_of(report));
  request.output.write("ledger", details, epochs_of(report));
  if (!report.proven()) {
    throw CLI::RuntimeError(kFailure);
  }
}

}  // namespace

void add_ledger(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("ledger", "Prove from a run log that every sample was used exactly once");
  const auto request = std::make_shared<LedgerRequest>();
  command->add_option("RUN", request->log, "The log of a run, as --log writes it")->required()->type_name("FILE");
  request->output.add_option(*command);
  command->footer(
      "Exit status: 0 proven, 1 not proven (samples used again or not at all, or a log that was damaged or changed),\n"
      "2 bad usage. An epoch that is not finished is no fault.\n"
      "Example:\n"
      "  isochron train --dataset synthetic --epochs 2 --log run.jsonl && isochron ledger run.jsonl");
  command->final_callback([request] { run_ledger(*request); });
}

}  // namespace isochron::cli
