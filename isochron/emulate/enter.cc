#include "isochron/emulate/enter.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/cgroup.h"
#include "isochron/emulate/job_folder.h"
#include "isochron/emulate/network.h"
#include "isochron/emulate/process.h"
#include "isochron/io/worker_phase.h"

namespace isochron::emulate {
namespace {

constexpr int kCannotEnter = 1;

std::size_t rank_of_environment() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    std::size_t rank = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), rank).ec == std::errc{}) {
      return rank;
    }
  }
  throw Error("no rank in the environment; `isochron enter` is what `isochron launch` runs through mpirun");
}

volatile std::sig_atomic_t asked_to_end = 0;

/// Requests to end reach the worker and its parent; what the worker makes of them is what counts.
void on_request_to_end(void (*action)(int)) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(number, action) == SIG_IGN && number == SIGHUP) {
      std::signal(number, SIG_IGN);  // by nohup, for the launcher
    }
  }
}

/// What the launcher has preloaded is for mpirun alone: the worker's program may listen where it likes.
void drop_preloaded() {
  const char* const given = std::getenv("LD_PRELOAD");
  const std::string value = given != nullptr ? given : "";
  const std::size_t end = value.find_first_of(": ");
  if (!value.substr(0, end).ends_with(std::string("/") + kInterfaceLibrary)) {
    return;
  }
  if (end == std::string::npos) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", value.substr(end + 1).c_str(), /*overwrite=*/1);
  }
}

[[noreturn]] void become_worker(const WorkerNotes& notes, pid_t group, const std::vector<std::string>& command) {
  on_request_to_end(SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    if (const char* const cgroup = std::getenv(kCgroupVariable)) {
      join_cgroup(cgroup);
    }
    if (const char* const network = std::getenv(kNetworkVariable)) {
      join_network(network);
    }
    notes.write_pids({.process = getpid(), .group = group});
  } catch (const std::exception& error) {
    std::cerr << "isochron: " << error.what() << '\n';
    _exit(kCannotEnter);
  }
  replace_by(command);
  std::cerr << "isochron: cannot start " << command.front() << ": " << std::strerror(errno) << '\n';
  _exit(kCannotStart);
}

/// So that MPI's daemon sees what happened to the worker.
[[noreturn]] void end_by(int number) {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // the worker has left one
  std::signal(number, SIG_DFL);
  raise(number);
  _exit(128 + number);
}

/// By _exit, in the middle of training: neither the launcher nor MPI could tell it from one that is done.
bool left_early(const std::filesystem::path& folder, pid_t process, int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
         (io::has_reached(folder, process, io::WorkerPhase::kStarting) ||
          io::has_reached(folder, process, io::WorkerPhase::kConnected)) &&
         !io::has_reached(folder, process, io::WorkerPhase::kEnded);
}

}  // namespace

int enter(
    const std::filesystem::path& folder, std::optional<std::size_t> worker, const std::vector<std::string>& command) {
  const WorkerNotes notes(folder, worker ? *worker : rank_of_environment());
  notes.forget_process();
  for (const auto& [name, value] : notes.environment()) {
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  drop_preloaded();
  on_request_to_end([](int) { asked_to_end = 1; });
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // mpirun has killed its workers if it could
  setpgid(0, 0);
  const pid_t group = getpgrp();
  const pid_t child = fork();
  if (child == 0) {
    become_worker(notes, group, command);
  }
  if (child < 0) {
    throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  }
  int status = 0;
  while (waitpid(child, &status, 0) != child) {
    // a signal came in between
  }
  if (left_early(folder, child, status)) {
    std::cerr << "isochron: process " << child
              << " has left the job with status 0 before its end, and counts as lost\n";
    notes.write_status(128 + SIGKILL);
    end_by(SIGKILL);
  }
  notes.write_status(exit_status(status));
  // One that was lost must be known to MPI at once, or the others wait for it in vain.
  while (WIFEXITED(status) && asked_to_end != 0 && !all_have_ended(folder)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFSIGNALED(status)) {
    end_by(WTERMSIG(status));
  }
  return exit_status(status);
}

}  // namespace isochron::emulate
