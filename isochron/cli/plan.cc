#include <iostream>
#include <memory>

#include "isochron/cli/commands.h"
#include "isochron/cli/plan_request.h"
#include "isochron/cli/plan_results.h"

namespace isochron::cli {
namespace {

void run_plan(PlanRequest& request) {
  const PlanTask task = checked(request);
  request.output.open();
  const PlanResults results = make_plan(task);
  if (!request.output.takes_standard_output()) {
    std::cout << to_text(task, results);
  }
  request.output.write("plan", plan_details(task, results), plan_documents(task, results));
}

}  // namespace

void add_plan(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("plan", "Predict speed, time and cost of a job on a set of machines");
  const auto request = std::make_shared<PlanRequest>();
  request->add_options(*command);
  command->footer(
      "Examples:\n"
      "  isochron profile --model cnn --dataset fashion-mnist -o cnn.json\n"
      "  isochron plan --machines lab.toml --model-profile cnn.json --epochs 20\n"
      "  isochron plan --cluster hl8 --model-profile cnn.json --global-batch 512\n"
      "  isochron plan --run run.jsonl --global-batch 1024");
  command->final_callback([request] { run_plan(*request); });
}

}  // namespace isochron::cli
