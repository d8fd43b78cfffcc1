#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/worker_program.h"
#include "isochron/emulate/checkup.h"
#include "isochron/emulate/listeners.h"

namespace isochron::cli {
namespace {

using emulate::Finding;
using emulate::Health;

struct DoctorRequest {
  std::string job;
  std::string data = "data";
  JsonOutput output;
};

Finding check_worker_program() {
  try {
    return {.check = "engine", .text = worker_program().string()};
  } catch (const std::invalid_argument& error) {
    return {
        .check = "engine",
        .health = Health::kWarn,
        .text = error.what(),
        .remedy = "only `train`, `compare` and `profile` need it: `make` in a clone builds it"};
  }
}

/// One for every port of the job.
std::vector<Finding> examine_job(const std::string& job) {
  std::vector<Finding> findings;
  for (const emulate::Listener& one : emulate::listeners_of_job(job)) {
    Finding finding{
        .check = "process " + std::to_string(one.process) + ", " + one.program,
        .text = one.address + ":" + std::to_string(one.port) + ", " + one.opener};
    if (!one.loopback) {
      finding.health = Health::kWarn;
      finding.remedy = "others than this host may reach it: docs/security.md says how to keep it to one interface";
    }
    findings.push_back(std::move(finding));
  }
  if (findings.empty()) {
    findings.push_back({.check = "process " + job, .text = "nothing listens"});
  }
  return findings;
}

std::vector<Finding> examine(const std::string& data) {
  std::vector<Finding> findings{check_worker_program()};
  for (std::vector<Finding>& more : std::vector{
           emulate::check_mpi(), emulate::check_python(), emulate::check_limits(), emulate::check_machine(data)}) {
    std::ranges::move(more, std::back_inserter(findings));
  }
  return findings;
}

void print_findings(const std::vector<Finding>& findings) {
  const std::size_t width =
      std::ranges::max(findings, {}, [](const Finding& f) { return f.check.size(); }).check.size();
  for (const Finding& finding : findings) {
    const std::string health(to_string(finding.health));
    std::cout << health << std::string(6 - health.size(), ' ') << finding.check
              << std::string(width - finding.check.size() + 2, ' ') << finding.text
              << (finding.remedy.empty() ? "" : "; " + finding.remedy) << '\n';
  }
}

void run_doctor(DoctorRequest& request) {
  request.output.open();
  const std::vector<Finding> findings = request.job.empty() ? examine(request.data) : examine_job(request.job);
  if (!request.output.takes_standard_output()) {
    print_findings(findings);
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    results.push_back(
        {{"check", finding.check},
         {"health", to_string(finding.health)},
         {"text", finding.text},
         {"remedy", finding.remedy}});
  }
  request.output.write("doctor", {}, results);
  if (std::ranges::count(findings, Health::kFail, &Finding::health) > 0) {
    throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_doctor(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("doctor", "Check what this machine lacks, and say how to repair it");
  const auto request = std::make_shared<DoctorRequest>();
  command->add_option("--data", request->data, "Folder of the datasets")->type_name("FOLDER")->capture_default_str();
  command->add_option("--job", request->job, "Instead, what the processes of this job listen on: its launcher's number")
      ->type_name("PROCESS");
  request->output.add_option(*command);
  command->footer("Exit status: 1 if a check fails; warnings do not count.");
  command->final_callback([request] { run_doctor(*request); });
}

}  // namespace isochron::cli
