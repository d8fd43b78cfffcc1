#include "isochron/io/worker_phase.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/io/worker_variables.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndings[] = {".starting", ".member", ".ended"};  // by phase

/// The file is empty: that it is there says all, and nobody can see half of it.
fs::path note(const fs::path& folder, pid_t process, WorkerPhase phase) {
  return folder / (std::to_string(process) + kEndings[static_cast<std::size_t>(phase)]);
}

}  // namespace

void note_worker_phase(WorkerPhase phase) {
  const char* const folder = std::getenv(kJobFolderVariable);
  if (folder == nullptr) {
    return;
  }
  const fs::path path = note(folder, getpid(), phase);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) {
    throw Error("cannot write " + path.string() + ": " + std::strerror(errno));
  }
  ::close(file);
}

bool has_reached(const fs::path& folder, pid_t process, WorkerPhase phase) {
  std::error_code none;
  return fs::exists(note(folder, process, phase), none);
}

}  // namespace isochron::io
