#include "isochron/comm/mpi_session.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <mpi.h>
#include <unistd.h>

#include "isochron/comm/mpi_call.h"
#include "isochron/comm/own_interface.h"

namespace isochron {
namespace {

constexpr auto kTimeToEnd = std::chrono::seconds(5);

volatile std::sig_atomic_t status_at_the_end = 0;

void end_now(int /*signal*/) {
  std::_Exit(status_at_the_end);
}

void watch_the_end(int status, void* /*argument*/) {
  std::cout.flush();
  std::fflush(nullptr);
  status_at_the_end = status;
  for (const int crash : {SIGABRT, SIGSEGV, SIGBUS}) {
    std::signal(crash, end_now);
  }
  std::thread([status] {
    std::this_thread::sleep_for(kTimeToEnd);
    std::_Exit(status);
  }).detach();
}

// To a worker that joined, or from it, MPI writes through sockets, and by default a write to one that has just died
// ends the writer too. As an error it is what MPI expects.
void outlive_broken_connections() {
  if (const auto chosen = std::signal(SIGPIPE, SIG_IGN); chosen != SIG_DFL) {
    std::signal(SIGPIPE, chosen);
  }
}

// Around the start of a process that is a world of its own, which would leave shared memory and a folder behind that
// nobody needs (Open MPI 5.0.11), and listen to nobody on every interface.
class LoneStart {
 public:
  LoneStart() {
    if (std::getenv("PMIX_NAMESPACE") != nullptr || std::getenv("PMI_RANK") != nullptr) {
      return;
    }
    setenv("OMPI_MCA_btl", "self", /*overwrite=*/0);
    std::error_code none;
    // If this process is killed here, a launcher removes it (emulate/owner.h).
    const std::string stem = "isochron-mpi-" + std::to_string(getpid()) + "-XXXXXX";
    std::string name = (std::filesystem::temp_directory_path(none) / stem).string();
    if (mkdtemp(name.data()) != nullptr) {
      folder_ = name;
      const char* const given = std::getenv("TMPDIR");
      given_ = given != nullptr ? std::optional<std::string>(given) : std::nullopt;
      setenv("TMPDIR", name.c_str(), /*overwrite=*/1);
    }
  }
  LoneStart(const LoneStart&) = delete;
  LoneStart& operator=(const LoneStart&) = delete;
  ~LoneStart() {
    if (folder_.empty()) {
      return;
    }
    if (given_) {
      setenv("TMPDIR", given_->c_str(), /*overwrite=*/1);
    } else {
      unsetenv("TMPDIR");
    }
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }

 private:
  std::filesystem::path folder_;
  std::optional<std::string> given_;
};

// By the first worker of a job that has others.
void warn_of_open_ports() {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0 && size > 1) {
    std::cerr << "warning: MPI listens on all interfaces of every host; name the one between the hosts by "
                 "ISOCHRON_INTERFACE, as in mpirun -x ISOCHRON_INTERFACE=eth1\n";
  }
}

}  // namespace

MpiSession::MpiSession() {
  outlive_broken_connections();
  // Open MPI's other algorithms for the non-blocking all-reduce need twice the time for large messages. Other
  // implementations ignore the variable; a value from mpirun --mca or the user's environment wins.
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", /*overwrite=*/0);
  // Among workers of which some joined later, ranks do not agree on whether its collectives by hosts are to be used,
  // and wait for each other (5.0.11). Ours are not among them.
  setenv("OMPI_MCA_coll", "^han", /*overwrite=*/0);
  // Both sides of a join are connected by the launcher's daemon, without a limit in time unless it is told one.
  setenv("OMPI_MCA_mpi_pmix_connect_timeout", "60", /*overwrite=*/0);  // seconds
  const std::string interface = interface_for_mpi();
  if (!interface.empty()) {
    setenv("OMPI_MCA_btl_tcp_if_include", interface.c_str(), /*overwrite=*/0);  // what the others are told
  }
  int provided = MPI_THREAD_SINGLE;
  {
    const LoneStart lone;
    const OwnInterface own(interface);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error("this MPI does not support MPI_THREAD_MULTIPLE; use a build that does");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (interface.empty()) {
    warn_of_open_ports();
  }
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

void MpiSession::end_in_time() {
  // Before the session's destructor, if that is static, since it is registered after it.
  static const int registered [[maybe_unused]] = on_exit(watch_the_end, nullptr);
}

void start_mpi() {
  outlive_broken_connections();
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    static const MpiSession session;
  }
}

}  // namespace isochron
