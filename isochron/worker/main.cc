#include "isochron/cli/program.h"
#include "isochron/engine/tensor_memory.h"
#include "isochron/worker/commands.h"
#include "isochron/worker/complain.h"

int main(int argc, char** argv) {
  isochron::reuse_tensor_memory();
  const isochron::cli::Program program{
      .description = "The commands of isochron that need LibTorch and MPI.",
      .add_commands =
          [](CLI::App& app) {
            isochron::worker::add_train(app);
            isochron::worker::add_compare(app);
            isochron::worker::add_profile(app);
          },
      .complain = isochron::worker::complain};
  return isochron::cli::run_program(program, argc, argv);
}
