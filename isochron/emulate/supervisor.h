// Stays beside a running job: applies the schedule of its cluster, passes signals on, and judges how it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "isochron/emulate/cpu_limiter.h"
#include "isochron/emulate/schedule.h"
#include "isochron/emulate/worker_process.h"
#include "isochron/io/step_file.h"
#include "isochron/io/worker_phase.h"

namespace isochron::emulate {

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD wait for Supervisor::run() instead of doing what they do, in this thread and
/// those it starts, until this goes.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

  /// The next one, or 0 if none comes in this time.
  [[nodiscard]] int wait_for(std::chrono::nanoseconds time) const;

 private:
  sigset_t held_{};
  sigset_t before_{};
};

/// A cluster that has changed while its job runs.
struct FollowedCluster {
  Schedule schedule;
  std::vector<std::int64_t> periods;  // of the quotas of those who are new, who come last
};

/// A job that has been started.
struct RunningJob {
  pid_t mpirun = 0;
  std::filesystem::path folder;
  std::vector<std::string> names;              // of the workers
  std::int64_t replacements = 0;               // of workers that die, in all
  std::chrono::milliseconds start_timeout{0};  // until the first step, and of those who join until they take part
  std::chrono::milliseconds stop_timeout{0};   // until the workers have ended that were asked to
  bool starts_again = false;                   // after it has ended by itself, from a checkpoint
  std::optional<Schedule> schedule;            // none: no limits
  std::vector<std::int64_t> periods;           // of the workers' quotas, microseconds
  std::unique_ptr<CpuLimiter> limiter;         // null: no limits
  // Asked some times a second, if there is one; there are notes of those who are new.
  std::function<std::optional<FollowedCluster>()> look_at_cluster;
  std::function<void(const std::string&)> say;
};

struct JobEnd {
  int status = 0;
  bool asked_to_end = false;       // by a signal to the launcher
  bool before_first_step = false;  // a worker was lost or late before the job could begin
};

class Supervisor {
 public:
  Supervisor(RunningJob job, const io::StepFile& step_file, const HeldSignals& signals);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  /// Kills what still runs.
  ~Supervisor();

  /// Until mpirun has ended. A first signal is passed on to the workers, a second one kills them. Workers that keep the
  /// job from beginning or ending longer than they may are named and killed.
  JobEnd run();

 private:
  void adopt_workers();
  void note_added_workers();
  void look_at_cluster();
  void note_lost_workers(std::int64_t step);
  void watch_start(std::int64_t step);
  void watch_first_step();
  void watch_mpirun(std::int64_t step);
  void watch_stopped();
  void watch_end();
  void give_up_start(const std::string& reason);
  void kill_late(std::size_t worker, const std::string& reason);
  void ask_for(std::size_t worker);
  void apply_schedule(std::int64_t step);
  bool apply(std::size_t worker, const Limits& wanted);
  void pass_on(int signal);
  void ask_to_end(int signal, const std::string& reason);
  void signal_workers(int signal) const;
  void end_mpirun_in_time();
  [[nodiscard]] bool mpirun_has_ended();
  [[nodiscard]] bool has_reached(std::size_t worker, io::WorkerPhase phase) const;
  [[nodiscard]] bool has_anybody_reached(io::WorkerPhase phase) const;
  [[nodiscard]] bool is_awaiting_all() const;
  [[nodiscard]] bool ended_well(int status) const;
  [[nodiscard]] bool failed_to_join(std::size_t worker) const;
  [[nodiscard]] int verdict() const;

  std::deque<std::optional<WorkerProcess>> workers_;  // none: not begun; the limiter refers to them
  RunningJob job_;
  const io::StepFile& step_file_;
  const HeldSignals& signals_;
  std::vector<Limits> limits_;     // in force
  std::vector<bool> end_noticed_;  // workers whose end was noticed
  std::optional<std::chrono::steady_clock::time_point> first_step_;
  std::chrono::steady_clock::time_point next_look_;                  // at the cluster
  std::optional<std::chrono::steady_clock::time_point> last_ended_;  // none: some worker lives
  std::optional<int> mpirun_status_;
  int passed_on_ = 0;   // the signal; 0: none
  bool begun_ = false;  // some worker has

  // What is waited for, and since when.
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> awaiting_since_;    // for the first step, or for all to connect
  std::vector<std::optional<std::chrono::steady_clock::time_point>> due_;  // of joiners, to take part
  struct Lost {
    std::size_t worker = 0;
    int status = 0;  // kept here: the notes of a worker that is replaced begin anew
  };
  std::optional<Lost> lost_at_start_;  // the first that was
  bool start_failed_ = false;
  // Whoever was asked for and has no process yet: since when, and at which step of the job.
  struct Asked {
    std::chrono::steady_clock::time_point since;
    std::int64_t step = 0;
  };
  std::map<std::size_t, Asked> asked_for_;
  struct AllStopped {  // all who take part
    std::chrono::steady_clock::time_point since;
    std::chrono::nanoseconds computed{0};  // by them, until then
  };
  std::optional<AllStopped> all_stopped_;
  bool starts_anew_ = false;  // the job was asked to end by this launcher, since its mpirun hangs
  std::optional<std::chrono::steady_clock::time_point> asked_;    // to end
  std::optional<std::chrono::steady_clock::time_point> reached_;  // the end, by the first of them
  std::chrono::steady_clock::time_point next_start_watch_;
  std::chrono::steady_clock::time_point next_watch_;  // of the end
  std::set<std::size_t> joiners_;                     // were asked for while the job ran
  std::set<std::size_t> late_;                        // killed for it
};

}  // namespace isochron::emulate
