#include "isochron/emulate/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>
#include <utility>

#include <sys/wait.h>

#include "isochron/emulate/job_folder.h"
#include "isochron/emulate/process.h"
#include "isochron/io/join_requests.h"
#include "isochron/io/worker_variables.h"

namespace isochron::emulate {
namespace {

using Clock = std::chrono::steady_clock;

// How late a change may be, at most; looking costs some microseconds.
constexpr auto kTick = std::chrono::milliseconds(5);
// Between two looks at the cluster's file.
constexpr auto kLook = std::chrono::milliseconds(200);
// What mpirun may take to end after the last worker has: that of Open MPI 5.0.11 may wait for ever where some joined.
constexpr auto kTimeToEnd = std::chrono::seconds(5);
// Between two looks at who has begun, or has reached the end.
constexpr auto kWatch = std::chrono::milliseconds(100);
// What others may take once one worker has reached the end of the job: to write results, and for one that was about to
// join to hear that there is nothing left to join.
constexpr auto kTimeToFinish = std::chrono::seconds(60);
constexpr auto kTimeToHear = std::chrono::seconds(15);
// Steps in which the job has had the time to look for requests: mpirun is to blame then, not a long step.
constexpr std::int64_t kStepsToLook = 3;

std::string in_seconds(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

std::string describe(const std::string& worker, const Limits& limits) {
  std::ostringstream text;
  text << "worker \"" << worker << "\" ";
  if (!limits.present) {
    text << "is killed";
  } else if (limits.stopped) {
    text << "is stopped";
  } else {
    text << "has " << limits.cores << " cores";
  }
  return text.str();
}

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction now{};
    if (number == SIGHUP && sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) {
      continue;  // by nohup: one that is held would come through all the same
    }
    sigaddset(&held_, number);
  }
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int HeldSignals::wait_for(std::chrono::nanoseconds time) const {
  const timespec limit{.tv_sec = 0, .tv_nsec = time.count()};
  const int number = sigtimedwait(&held_, nullptr, &limit);
  return number < 0 ? 0 : number;
}

Supervisor::Supervisor(RunningJob job, const io::StepFile& step_file, const HeldSignals& signals)
    : workers_(job.names.size()),
      job_(std::move(job)),
      step_file_(step_file),
      signals_(signals),
      end_noticed_(workers_.size()),
      due_(workers_.size()) {
  if (job_.schedule) {
    limits_ = job_.schedule->at(io::StepFile::kNotStarted, -1.0);
  }
}

Supervisor::~Supervisor() {
  adopt_workers();
  signal_workers(SIGKILL);
  if (!mpirun_status_) {
    kill(job_.mpirun, SIGKILL);
    waitpid(job_.mpirun, nullptr, 0);
  }
}

JobEnd Supervisor::run() {
  while (!mpirun_has_ended()) {
    const int signal = signals_.wait_for(kTick);
    // The step first: whoever publishes one has begun.
    const std::int64_t step = step_file_.step();
    look_at_cluster();
    note_added_workers();
    adopt_workers();
    note_lost_workers(step);
    if (signal != 0 && signal != SIGCHLD) {
      pass_on(signal);
    }
    if (job_.schedule && passed_on_ == 0) {
      apply_schedule(step);
    }
    watch_start(step);
    watch_mpirun(step);
    watch_stopped();
    watch_end();
    end_mpirun_in_time();
  }
  return {.status = verdict(), .asked_to_end = passed_on_ != 0 && !starts_anew_, .before_first_step = start_failed_};
}

bool Supervisor::mpirun_has_ended() {
  int status = 0;
  if (waitpid(job_.mpirun, &status, WNOHANG) == job_.mpirun) {
    mpirun_status_ = exit_status(status);
  }
  return mpirun_status_.has_value();
}

void Supervisor::end_mpirun_in_time() {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker] && !end_noticed_[worker]) {
      last_ended_.reset();
      return;
    }
  }
  const auto now = Clock::now();
  if (begun_ && !last_ended_) {
    last_ended_ = now;
  }
  if (last_ended_ && now > *last_ended_ + kTimeToEnd) {
    job_.say("all workers have ended, but not mpirun: it is killed");
    kill(job_.mpirun, SIGKILL);
    last_ended_ = now;
  } else if (!begun_ && asked_ && now > *asked_ + job_.stop_timeout) {
    job_.say(
        "no worker has begun within " + in_seconds(job_.stop_timeout) +
        " after the job was asked to end: mpirun is killed");
    kill(job_.mpirun, SIGKILL);
    asked_ = now;
  }
}

void Supervisor::adopt_workers() {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker]) {
      continue;
    }
    if (const auto pids = WorkerNotes(job_.folder, worker).pids()) {
      workers_[worker].emplace(*pids);
      asked_for_.erase(worker);
      begun_ = true;
      if (joiners_.contains(worker)) {
        due_[worker] = Clock::now() + job_.start_timeout;
      }
      if (job_.limiter && worker < limits_.size()) {  // those who were attached have no limits
        job_.limiter->watch(worker, *workers_[worker]);
      }
      if (passed_on_ != 0) {
        workers_[worker]->signal(passed_on_);
      }
    }
  }
}

/// There are notes of them: by `isochron launch --attach`, or because the cluster's file has them now.
void Supervisor::note_added_workers() {
  for (std::size_t worker = workers_.size(); worker < count_workers(job_.folder); ++worker) {
    workers_.emplace_back();
    end_noticed_.push_back(false);
    due_.emplace_back();
    joiners_.insert(worker);
    asked_for_[worker] = {.since = Clock::now(), .step = step_file_.step()};
    const Variables variables = WorkerNotes(job_.folder, worker).environment();
    const auto name = std::ranges::find(variables, io::kWorkerNameVariable, &Variables::value_type::first);
    job_.names.push_back(name != variables.end() ? name->second : "w" + std::to_string(worker));
    job_.say("worker \"" + job_.names.back() + "\" is to join");
  }
}

void Supervisor::look_at_cluster() {
  if (!job_.look_at_cluster || passed_on_ != 0 || Clock::now() < next_look_) {
    return;
  }
  next_look_ = Clock::now() + kLook;
  if (auto followed = job_.look_at_cluster()) {
    job_.schedule = std::move(followed->schedule);
    job_.periods.insert(job_.periods.end(), followed->periods.begin(), followed->periods.end());
    limits_.resize(job_.periods.size(), {.present = false});
  }
}

/// A worker that was killed with its parent could not note it, and others may be waiting for that. One that nobody
/// meant to kill is replaced.
void Supervisor::note_lost_workers(std::int64_t step) {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!workers_[worker] || workers_[worker]->is_alive() || end_noticed_[worker]) {
      continue;
    }
    end_noticed_[worker] = true;
    const WorkerNotes notes(job_.folder, worker);
    if (!notes.status()) {
      notes.write_status(128 + SIGKILL);
    }
    const bool meant = worker < limits_.size() && !limits_[worker].present;
    const bool lost = *notes.status() > 128 || (*notes.status() != 0 && failed_to_join(worker));
    if (!lost || meant || passed_on_ != 0 || start_failed_ || reached_) {
      continue;
    }
    if (step == io::StepFile::kNotStarted && !lost_at_start_) {
      lost_at_start_ = {.worker = worker, .status = *notes.status()};
    }
    if (job_.replacements > 0 && !(lost_at_start_ && is_awaiting_all())) {
      --job_.replacements;
      job_.say("worker \"" + job_.names[worker] + "\" was lost, and another is started in its place");
      ask_for(worker);
    }
  }
}

/// The job starts the process itself, as MPI wants it, when it finds the request.
void Supervisor::ask_for(std::size_t worker) {
  if (worker < limits_.size()) {
    job_.limiter->forget(worker);
  }
  workers_[worker].reset();
  end_noticed_[worker] = false;
  due_[worker].reset();
  late_.erase(worker);
  joiners_.insert(worker);
  asked_for_[worker] = {.since = Clock::now(), .step = step_file_.step()};
  WorkerNotes(job_.folder, worker).forget_process();
  io::post_join_request(
      job_.folder, {.command = command_to_join(job_.folder, worker), .worker = static_cast<std::int64_t>(worker)});
}

bool Supervisor::has_reached(std::size_t worker, io::WorkerPhase phase) const {
  return workers_[worker] && io::has_reached(job_.folder, workers_[worker]->process(), phase);
}

bool Supervisor::has_anybody_reached(io::WorkerPhase phase) const {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (has_reached(worker, phase)) {
      return true;
    }
  }
  return false;
}

/// Whether it is ours to judge, before there is a step: a program of one's own may publish none, and may do without the
/// others, but not while it makes a job.
bool Supervisor::is_awaiting_all() const {
  return has_anybody_reached(io::WorkerPhase::kStarting) ||
         (has_anybody_reached(io::WorkerPhase::kConnecting) && !has_anybody_reached(io::WorkerPhase::kConnected));
}

/// The owner of every wait for somebody who starts: in MPI those have no end.
void Supervisor::watch_start(std::int64_t step) {
  if (start_failed_ || passed_on_ != 0) {
    return;
  }
  if (step == io::StepFile::kNotStarted) {
    watch_first_step();
    return;
  }
  lost_at_start_.reset();
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!due_[worker] || Clock::now() < *due_[worker]) {
      continue;
    }
    due_[worker].reset();
    if (!end_noticed_[worker] && !has_reached(worker, io::WorkerPhase::kMember)) {
      kill_late(worker, "did not join within " + in_seconds(job_.start_timeout));
    }
  }
}

void Supervisor::watch_first_step() {
  if (Clock::now() < next_start_watch_) {
    return;
  }
  next_start_watch_ = Clock::now() + kWatch;
  const bool awaiting = is_awaiting_all();
  if (lost_at_start_ && awaiting) {
    give_up_start(
        "worker \"" + job_.names[lost_at_start_->worker] + "\" was lost (status " +
        std::to_string(lost_at_start_->status) + ") before the first step");
    return;
  }
  if (awaiting && !awaiting_since_) {
    awaiting_since_ = Clock::now();
  }
  const bool begun = std::ranges::any_of(workers_, [](const auto& worker) { return worker.has_value(); });
  if (Clock::now() < awaiting_since_.value_or(began_) + job_.start_timeout || (begun && !awaiting)) {
    return;
  }
  std::string missing;
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!has_reached(worker, io::WorkerPhase::kStarting) && !has_reached(worker, io::WorkerPhase::kConnecting)) {
      missing += (missing.empty() ? "; not there yet: \"" : ", \"") + job_.names[worker] + "\"";
    }
  }
  give_up_start("there was no first step within " + in_seconds(job_.start_timeout) + missing);
}

/// The owner of the wait for a process that mpirun was asked to start. That of Open MPI 5.0.11 may hang for good after
/// a death (its PMIx thread turns in libevent and keeps the lock), and then nobody joins any more.
void Supervisor::watch_mpirun(std::int64_t step) {
  if (passed_on_ != 0 || start_failed_ || asked_for_.empty()) {
    return;
  }
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (joiners_.contains(worker) && workers_[worker] && due_[worker] && !end_noticed_[worker] &&
        !has_reached(worker, io::WorkerPhase::kMember)) {
      // They come one by one, so the others' time begins when this one has joined, or is given up.
      for (auto& [other, asked] : asked_for_) {
        asked = {.since = Clock::now(), .step = step};
      }
      return;
    }
  }
  const auto late = std::ranges::find_if(asked_for_, [&](const auto& one) {
    return Clock::now() > one.second.since + job_.start_timeout && step >= one.second.step + kStepsToLook;
  });
  if (late == asked_for_.end()) {
    return;
  }
  const std::string reason = "worker \"" + job_.names[late->first] +
                             "\" was asked for, and mpirun has started no process within " +
                             in_seconds(job_.start_timeout);
  if (job_.starts_again) {
    starts_anew_ = true;
    ask_to_end(SIGTERM, reason + ": the job is asked to end, and is started again");
  } else {
    job_.say(reason + ": the job goes on without it");
    WorkerNotes(job_.folder, late->first).write_status(128 + SIGKILL);
    asked_for_.erase(late);
  }
}

/// The owner of the wait for a job whose workers are all stopped, or whose only one is: nobody is left to evict them,
/// or to wait for them at the start; who has done its part waits for them in MPI_Finalize. The duty cycle stops them,
/// too, but they compute in between.
void Supervisor::watch_stopped() {
  const auto now = Clock::now();
  if (now < next_watch_ || passed_on_ != 0 || start_failed_) {
    return;
  }
  std::vector<std::size_t> present;
  std::chrono::nanoseconds computed{0};
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    const bool takes_part = !joiners_.contains(worker) || has_reached(worker, io::WorkerPhase::kMember);
    if (workers_[worker] && !end_noticed_[worker] && takes_part && workers_[worker]->is_alive() &&
        (workers_[worker]->is_stopped() || !has_reached(worker, io::WorkerPhase::kEnded))) {
      present.push_back(worker);
      computed += workers_[worker]->cpu_time().value_or(std::chrono::nanoseconds(0));
    }
  }
  const bool all = !present.empty() && std::ranges::all_of(present, [this](std::size_t worker) {
    return workers_[worker]->is_stopped() && !(worker < limits_.size() && limits_[worker].stopped);
  });
  if (!all) {
    all_stopped_.reset();
  } else if (!all_stopped_ || all_stopped_->computed != computed) {
    all_stopped_ = {.since = now, .computed = computed};
  } else if (now > all_stopped_->since + job_.start_timeout) {
    for (const std::size_t worker : present) {
      kill_late(worker, "has been stopped, and nobody else runs, for " + in_seconds(job_.start_timeout));
    }
  }
}

/// MPI cannot begin without one of its processes, so all begin anew.
void Supervisor::give_up_start(const std::string& reason) {
  job_.say(reason + ": the workers are killed");
  start_failed_ = true;
  signal_workers(SIGKILL);
  kill(job_.mpirun, SIGKILL);
}

void Supervisor::kill_late(std::size_t worker, const std::string& reason) {
  if (late_.insert(worker).second) {
    job_.say("worker \"" + job_.names[worker] + "\" " + reason + ": it is killed");
    workers_[worker]->signal(SIGKILL);
  }
}

/// As the job, or whoever asked it to end, wants it.
bool Supervisor::ended_well(int status) const {
  return status == 0 || (passed_on_ != 0 && status == 128 + passed_on_);
}

/// It was started for a job that runs, and ended before it took part: MPI may have failed to connect the two.
bool Supervisor::failed_to_join(std::size_t worker) const {
  return joiners_.contains(worker) && has_reached(worker, io::WorkerPhase::kStarting) &&
         !has_reached(worker, io::WorkerPhase::kMember);
}

/// The owner of every wait for somebody to end.
void Supervisor::watch_end() {
  const auto now = Clock::now();
  if (now < next_watch_ || start_failed_) {
    return;
  }
  next_watch_ = now + kWatch;
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!workers_[worker]) {
      continue;
    }
    const bool member = has_reached(worker, io::WorkerPhase::kMember);
    if (const auto status = WorkerNotes(job_.folder, worker).status()) {
      if (member && ended_well(*status) && !reached_) {
        reached_ = now;
      }
    } else if (asked_ && now > *asked_ + job_.stop_timeout) {
      kill_late(worker, "did not end within " + in_seconds(job_.stop_timeout) + " after it was asked to");
    } else if (reached_ && now > *reached_ + (member ? kTimeToFinish : kTimeToHear)) {
      kill_late(worker, member ? "does not end with the others" : "had not joined when the job ended");
    }
  }
}

void Supervisor::apply_schedule(std::int64_t step) {
  if (!first_step_ && step != io::StepFile::kNotStarted) {
    first_step_ = Clock::now();
  }
  const double seconds = first_step_ ? std::chrono::duration<double>(Clock::now() - *first_step_).count() : -1.0;
  const std::vector<Limits> wanted = job_.schedule->at(step, seconds);
  for (std::size_t worker = 0; worker < wanted.size(); ++worker) {
    if (wanted[worker] != limits_[worker] && apply(worker, wanted[worker])) {
      job_.say("step " + std::to_string(step) + ": " + describe(job_.names[worker], wanted[worker]));
    }
  }
}

/// False if the worker has not begun.
bool Supervisor::apply(std::size_t worker, const Limits& wanted) {
  if (wanted.present && !limits_[worker].present) {
    job_.limiter->limit(worker, quota_for(wanted.cores, job_.periods[worker]));
    ask_for(worker);
    limits_[worker] = wanted;
    return true;
  }
  if (!workers_[worker]) {
    return false;
  }
  const WorkerProcess& process = *workers_[worker];
  const std::int64_t period = job_.periods[worker];
  if (!wanted.present) {
    process.signal(SIGKILL);
  } else if (wanted.stopped) {
    job_.limiter->limit(worker, {.microseconds = 0, .period = period});
    process.signal(SIGSTOP);
  } else {
    job_.limiter->limit(worker, quota_for(wanted.cores, period));
    if (limits_[worker].stopped) {
      process.signal(SIGCONT);
    }
  }
  limits_[worker] = wanted;
  return true;
}

void Supervisor::pass_on(int signal) {
  if (std::exchange(starts_anew_, false)) {
    return;  // it ends already, and will not be started again
  }
  if (passed_on_ != 0) {
    job_.say("signal again: the workers are killed");
    signal_workers(SIGKILL);
    if (!begun_) {
      kill(job_.mpirun, SIGKILL);  // it may hang
    }
    return;
  }
  // Workers know what to do on SIGINT and SIGTERM.
  ask_to_end(signal == SIGHUP ? SIGTERM : signal, std::string(strsignal(signal)) + ": passed on to the workers");
}

void Supervisor::ask_to_end(int signal, const std::string& reason) {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!workers_[worker]) {
      WorkerNotes(job_.folder, worker).write_status(128 + SIGKILL);  // it may never come, and others would wait for it
    }
  }
  asked_ = Clock::now();
  passed_on_ = signal;
  job_.say(reason);
  signal_workers(passed_on_);
  for (std::size_t worker = 0; worker < limits_.size(); ++worker) {
    if (limits_[worker].stopped) {  // it must hear it too
      apply(worker, {.cores = limits_[worker].cores});
    }
  }
}

void Supervisor::signal_workers(int signal) const {
  for (const auto& worker : workers_) {
    if (worker) {
      worker->signal(signal);
    }
  }
}

/// mpirun's word does not count for much: it says 0 however many ranks were lost, unless one of them had joined later.
/// The job succeeded, or ended as it was asked to, if somebody reached its end and all others were lost on the way.
int Supervisor::verdict() const {
  if (start_failed_ && passed_on_ != 0) {
    return 128 + passed_on_;  // it was asked to end while those who had not begun were being killed
  }
  bool reached = false;
  bool finished = false;
  int failure = 0;
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    const int status =
        failed_to_join(worker) ? 128 + SIGKILL : WorkerNotes(job_.folder, worker).status().value_or(128 + SIGKILL);
    reached = reached || ended_well(status);
    finished = finished || status == 0;
    if (status != 0 && (failure == 0 || failure > 128)) {
      failure = status;
    }
  }
  if (reached && (failure == 0 || failure > 128)) {
    return finished ? 0 : 128 + passed_on_;
  }
  return *mpirun_status_ != 0 ? *mpirun_status_ : failure;
}

}  // namespace isochron::emulate
