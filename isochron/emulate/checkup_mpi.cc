#include <cerrno>
#include <cstring>
#include <filesystem>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/checkup.h"
#include "isochron/emulate/mpirun.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

Finding check_starting(const Mpirun& mpirun) {
  Finding finding{.check = "processes", .text = "two workers can be started"};
  std::vector<std::string> command = mpirun_command(mpirun, {.workers = 2, .as_root = geteuid() == 0});
  command.emplace_back("true");
  if (const Outcome outcome = run(command); outcome.status != 0) {
    finding.health = Health::kFail;
    finding.text = "`mpirun -n 2 true` ends with " + std::to_string(outcome.status);
    finding.remedy = "see what it says: " + mpirun.path + " -n 2 true";
  }
  return finding;
}

/// By what ompi_info, beside mpirun, says of how MPI was built.
std::vector<Finding> check_build(const Mpirun& mpirun) {
  const std::string program = std::filesystem::path(mpirun.path).replace_filename("ompi_info").string();
  const std::string build = find_program(program).empty() ? "" : run({program, "--parsable"}).output;
  const auto says = [&build](const char* text) { return build.find(text) != std::string::npos; };
  Finding survival{.check = "lost workers", .text = "a job can go on without them (ULFM)"};
  if (!says("ft_mpi_support:yes")) {
    survival.health = Health::kWarn;
    survival.text = "a lost worker ends the job, which restarts from its checkpoint";
    survival.remedy = "use Open MPI 5 with ULFM, as `make` installs it";
  }
  Finding threads{.check = "threads", .text = "several may communicate at once (MPI_THREAD_MULTIPLE)"};
  if (!says("MPI_THREAD_MULTIPLE: yes")) {
    threads.health = Health::kWarn;
    threads.text = "no word of MPI_THREAD_MULTIPLE, which training needs";
    threads.remedy = "use Open MPI 5, as `make` installs it";
  }
  return {survival, threads};
}

Finding check_port() {
  Finding finding{.check = "ports", .text = "a port of this machine can be opened"};
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (handle < 0 || bind(handle, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    finding.health = Health::kFail;
    finding.text = std::string("no port of 127.0.0.1 can be opened: ") + std::strerror(errno);
    finding.remedy = "bring up the loopback interface: ip link set lo up";
  }
  if (handle >= 0) {
    close(handle);
  }
  return finding;
}

}  // namespace

std::string_view to_string(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarn:
      return "warn";
    case Health::kFail:
      return "fail";
  }
  return "";
}

std::vector<Finding> check_mpi() {
  std::vector<Finding> findings{check_port()};
  Finding found{.check = "mpirun"};
  try {
    const Mpirun mpirun = find_mpirun("");
    found.text = mpirun.version + " at " + mpirun.path;
    if (mpirun.family == MpiFamily::kUnknown) {
      found.health = Health::kWarn;
      found.remedy = "use one of Open MPI or MPICH";
    }
    findings.push_back(found);
    findings.push_back(check_starting(mpirun));
    for (Finding& finding : check_build(mpirun)) {
      findings.push_back(std::move(finding));
    }
  } catch (const Error& error) {
    found.health = Health::kWarn;
    found.text = error.what();
    found.remedy = "`isochron launch` and native training need Open MPI 5";
    findings.push_back(found);
  }
  return findings;
}

}  // namespace isochron::emulate
