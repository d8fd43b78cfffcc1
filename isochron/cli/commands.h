// The subcommands. Each function adds one to the program and arranges for it to run once the whole command line has
// been read.
//
// A command reports bad input by std::invalid_argument (the program ends with 2) and everything else that goes wrong
// by isochron::Error (1), before it has written anything. One whose status is another program's throws
// CLI::RuntimeError with it.
#pragma once

#include <CLI/CLI.hpp>

namespace isochron::cli {

void add_simulate(CLI::App& program);
void add_plan(CLI::App& program);
void add_worker_commands(CLI::App& program);  // train, compare and profile, which isochron-worker has
void add_report(CLI::App& program);
void add_serve(CLI::App& program);
void add_top(CLI::App& program);
void add_policies(CLI::App& program);
void add_clusters(CLI::App& program);
void add_ledger(CLI::App& program);
void add_launch(CLI::App& program);
void add_doctor(CLI::App& program);
void add_enter(CLI::App& program);  // hidden: what `launch` runs through mpirun

}  // namespace isochron::cli
