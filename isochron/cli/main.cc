#include "isochron/cli/commands.h"
#include "isochron/cli/program.h"

int main(int argc, char** argv) {
  const isochron::cli::Program program{
      .description = "Trains one model across unequal machines at the speed of their sum.",
      .add_commands = [](CLI::App& app) {
        isochron::cli::add_worker_commands(app);
        isochron::cli::add_launch(app);
        isochron::cli::add_simulate(app);
        isochron::cli::add_plan(app);
        isochron::cli::add_report(app);
        isochron::cli::add_serve(app);
        isochron::cli::add_top(app);
        isochron::cli::add_policies(app);
        isochron::cli::add_clusters(app);
        isochron::cli::add_ledger(app);
        isochron::cli::add_doctor(app);
        isochron::cli::add_enter(app);
      }};
  return isochron::cli::run_program(program, argc, argv);
}
