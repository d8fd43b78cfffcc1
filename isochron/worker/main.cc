#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isochron/cli/program.h"
#include "isochron/engine/tensor_memory.h"
#include "isochron/worker/commands.h"

namespace {

/// The one that should speak, since it knows most.
bool is_first_here() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  return rank == nullptr || std::string_view(rank) == "0";
}

/// Shows `text` unless another worker has spoken. MPI may not have been started, or may be the trouble, so they agree
/// through a file in the folder that mpirun keeps for the job. The lock lasts until this one has spoken: whoever comes
/// second ends later, and cannot make mpirun end the first one before. No longer, since the first may wait for the
/// second in MPI's own end.
void speak_once(const std::string& text) {
  const char* const folder = std::getenv("PMIX_SERVER_TMPDIR");
  const std::string path = std::string(folder == nullptr ? "" : folder) + "/isochron-complaint";
  const int file = folder == nullptr ? -1 : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  struct stat status{};
  const bool locked = file >= 0 && ::flock(file, LOCK_EX) == 0 && ::fstat(file, &status) == 0;
  if (!locked || (status.st_size == 0 && ::write(file, "1", 1) == 1)) {
    std::cerr << text << std::flush;
  }
  if (file >= 0) {
    ::close(file);
  }
}

/// Shows `text`. All workers of a job usually make the same mistake, since they are started by the same words: if
/// `status` says bad usage and mpirun started us, the workers of this host agree on one that shows it.
void complain(const std::string& text, int status) {
  if (status != isochron::cli::kBadUsage) {
    std::cerr << text << std::flush;
    return;
  }
  if (!is_first_here()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  speak_once(text);
}

}  // namespace

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
      .complain = complain};
  return isochron::cli::run_program(program, argc, argv);
}
