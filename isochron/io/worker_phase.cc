#include "isochron/io/worker_phase.h"

#include <cerrno>
#include <cstdio>
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

constexpr const char* kEndings[] = {".starting", ".connecting", ".connected", ".member", ".ended"};  // by phase

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
  bool done = false;
  if (phase == WorkerPhase::kEnded) {
    const fs::path before = note(folder, getpid(), WorkerPhase::kConnected);
    done = ::rename(before.c_str(), path.c_str()) == 0 || errno == ENOENT;  // it is noted already
  } else if (const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR); file >= 0) {
    done = ::close(file) == 0;
  }
  if (!done) {
    throw Error("cannot write " + path.string() + ": " + std::strerror(errno));
  }
}

bool has_reached(const fs::path& folder, pid_t process, WorkerPhase phase) {
  const auto is_noted = [&](WorkerPhase noted) {
    std::error_code none;
    return fs::exists(note(folder, process, noted), none);
  };
  return is_noted(phase) || (phase == WorkerPhase::kConnected && is_noted(WorkerPhase::kEnded));
}

}  // namespace isochron::io
