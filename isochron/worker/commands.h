// The commands of isochron-worker, those that need LibTorch and MPI. They keep to the rules of cli/commands.h, and to
// one more: mistakes that all workers can see are reported before MPI is started.
#pragma once

#include <CLI/CLI.hpp>

namespace isochron::worker {

void add_train(CLI::App& program);
void add_compare(CLI::App& program);
void add_profile(CLI::App& program);

}  // namespace isochron::worker
