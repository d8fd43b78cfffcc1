#include "isochron/worker/complain.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isochron/cli/program.h"

namespace isochron::worker {
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

}  // namespace

void complain(const std::string& text, int status) {
  if (status != cli::kBadUsage) {
    std::cerr << text << std::flush;
    return;
  }
  if (!is_first_here()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  speak_once(text);
}

}  // namespace isochron::worker
