#include "isochron/cli/worker_program.h"

#include <stdexcept>

namespace isochron::cli {

std::filesystem::path worker_program() {
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe").replace_filename("isochron-worker");
  if (!exists(path)) {
    throw std::invalid_argument(
        "this build has no engine (" + path.string() + " is not there); permitted: a build with ISOCHRON_ENGINE=ON");
  }
  return path;
}

}  // namespace isochron::cli
