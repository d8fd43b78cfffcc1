#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/core/staleness/clock_table.h"
#include "isochron/sim/ring.h"
#include "isochron/sim/run.h"
#include "isochron/sim/splitter.h"

namespace isochron::sim {
namespace {

/// Asynchronous parallel, bounded (SSP) or not (ASP): a queue of the moments at which workers push.
class Async {
 public:
  explicit Async(Run& run);
  void run();

 private:
  enum class Activity : std::uint8_t {
    kAway,     // not a member
    kHeld,     // too far ahead of the slowest
    kReady,    // may start
    kWorking,  // in the queue, unless it is stopped
  };

  /// One worker; moments are in seconds since the start of the run.
  struct Lane {
    WorkerId id = 0;
    Activity activity = Activity::kAway;
    bool stopped = false;
    std::int64_t iteration = 0;   // the one in progress or, between two, the coming one
    std::int64_t next_batch = 0;  // by the latest decision
    std::int64_t batch = 0;
    std::int64_t lead = 0;  // iterations ahead of the slowest when it started
    double idle_since = 0.0;
    double started = 0.0;
    double compute_seconds = 0.0;
    double due = 0.0;                       // when it pushes
    double left = 0.0;                      // from the moment it was stopped
    std::optional<WorkerTelemetry> report;  // since the last decision
  };

  void enter(const Member& member);
  void push(std::size_t worker);
  bool count(std::int64_t samples);
  bool observe_if_all_reported();
  void adopt_decision();
  void make_ready(const std::vector<WorkerId>& released);
  void start_ready();
  void start(std::size_t worker);
  void record_push(const Lane& lane, std::int64_t staleness) const;

  bool apply_due_changes();
  void apply(const Occurrence& change, bool& others);
  bool join(std::size_t worker);
  bool kill(std::size_t worker);
  bool stop(std::size_t worker);
  bool go_on(std::size_t worker);

  Run& run_;
  Splitter splitter_;
  ClockTable clocks_;
  std::vector<Lane> lanes_;                         // by the worker's number in the specification
  std::vector<std::size_t> worker_of_;              // by id
  std::set<std::pair<double, std::size_t>> queue_;  // (when, who) pushes next
  std::vector<std::size_t> ready_;                  // start next, in this order
  double now_ = 0.0;
  std::int64_t step_ = 0;     // times that B samples were pushed
  std::int64_t samples_ = 0;  // pushed since
  double step_began_ = 0.0;
  std::size_t reports_ = 0;  // workers that have reported since the last decision
  const Decision* decision_ = nullptr;
};

Async::Async(Run& run)
    : run_(run),
      splitter_(run.policy, {.workers = run.roster(), .global_batch = run.options.global_batch}, run.options.rate),
      clocks_(run.options.sync == Sync::kSsp ? std::optional(run.options.staleness) : std::nullopt),
      lanes_(run.cluster.workers.size()) {
  for (const WorkerSpec& worker : run.cluster.workers) {
    if (worker.min_batch < 1) {
      throw std::invalid_argument(
          "worker \"" + worker.name + "\": min_batch is 0; permitted in asynchronous modes: 1 or more");
    }
  }
}

void Async::run() {
  std::ranges::for_each(run_.fleet.members(), [&](const Member& member) { enter(member); });
  apply_due_changes();
  adopt_decision();
  run_.meter.follow_balance(step_, run_.fleet, *decision_);
  start_ready();
  while (step_ < run_.options.steps) {
    const double change_at = run_.schedule.next_seconds();
    if (!queue_.empty() && queue_.begin()->first < change_at) {
      push(queue_.begin()->second);
    } else if (change_at < std::numeric_limits<double>::infinity()) {
      now_ = std::max(now_, change_at);
      if (apply_due_changes()) {
        adopt_decision();
      }
      start_ready();
    } else {
      throw std::invalid_argument(
          "cluster \"" + run_.cluster.name + "\": after step " + std::to_string(step_) +
          " all wait for ever for a stopped worker; permitted: a later continue or kill of it with at_seconds");
    }
  }
}

void Async::enter(const Member& member) {
  Lane& lane = lanes_[member.index];
  lane.id = member.id;
  lane.idle_since = now_;
  lane.iteration = std::max(lane.iteration, step_);
  run_.fleet.advance(member.index, lane.iteration);
  worker_of_.resize(std::max(worker_of_.size(), member.id + 1));
  worker_of_[member.id] = member.index;
  clocks_.join(member.id);
  make_ready({member.id});
}

/// The worker's update is applied; what follows from it, in this order: the policy learns, the cluster changes, the new
/// split is adopted, and those that may go on start.
void Async::push(std::size_t worker) {
  Lane& lane = lanes_[worker];
  now_ = lane.due;
  queue_.erase(queue_.begin());
  const std::int64_t staleness = clocks_.push(lane.id);
  run_.meter.add_push(staleness, lane.lead);
  if (run_.recorder.update) {
    record_push(lane, staleness);
  }
  reports_ += lane.report ? 0U : 1U;
  lane.report = run_.report({.index = worker, .id = lane.id}, lane.batch, lane.compute_seconds);
  run_.fleet.note_computed(worker, lane.batch);
  lane.activity = Activity::kHeld;
  lane.idle_since = now_;
  const bool step_done = count(lane.batch);
  run_.fleet.advance(worker, ++lane.iteration);
  make_ready(clocks_.finish(lane.id));
  bool decide = observe_if_all_reported();
  if (step_done) {
    decide |= apply_due_changes();
  }
  if (decide) {
    adopt_decision();
  }
  if (step_done) {
    run_.meter.follow_balance(step_, run_.fleet, *decision_);
  }
  start_ready();
}

/// Whether these samples complete a step.
bool Async::count(std::int64_t samples) {
  samples_ += samples;
  if (samples_ < run_.options.global_batch) {
    return false;
  }
  samples_ -= run_.options.global_batch;
  ++step_;
  run_.meter.add_step(run_.fleet, now_ - step_began_);
  step_began_ = now_;
  return true;
}

bool Async::observe_if_all_reported() {
  const auto& members = run_.fleet.members();
  if (reports_ < members.size()) {
    return false;
  }
  StepTelemetry telemetry{.step = decision_->step, .workers = {}};
  std::vector<double> seconds;
  for (const Member& member : members) {
    Lane& lane = lanes_[member.index];
    seconds.push_back(lane.report->seconds);
    telemetry.workers.push_back(*std::exchange(lane.report, std::nullopt));
  }
  reports_ = 0;
  run_.meter.add_round(seconds, decision_->batch_sizes, decision_->changed);
  splitter_.observe(telemetry);
  return true;
}

void Async::adopt_decision() {
  decision_ = &splitter_.decide(run_.fleet);
  const auto& members = run_.fleet.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    lanes_[members[i].index].next_batch = decision_->batch_sizes[i];
  }
}

void Async::make_ready(const std::vector<WorkerId>& released) {
  for (const WorkerId id : released) {
    lanes_[worker_of_[id]].activity = Activity::kReady;
    ready_.push_back(worker_of_[id]);
  }
}

void Async::start_ready() {
  for (const std::size_t worker : ready_) {
    if (lanes_[worker].activity == Activity::kReady && !lanes_[worker].stopped) {
      start(worker);
    }
  }
  ready_.clear();
}

void Async::start(std::size_t worker) {
  Lane& lane = lanes_[worker];
  clocks_.pull(lane.id);
  lane.activity = Activity::kWorking;
  lane.lead = clocks_.clock(lane.id) - clocks_.slowest();
  lane.batch = lane.next_batch;
  lane.started = now_;
  lane.compute_seconds = run_.fleet.seconds(worker, lane.batch) + run_.fleet.cold_seconds(worker, lane.batch);
  lane.due = now_ + lane.compute_seconds + push_pull_seconds(run_.options.network, run_.cluster.workers[worker].link);
  queue_.emplace(lane.due, worker);
}

void Async::record_push(const Lane& lane, std::int64_t staleness) const {
  run_.recorder.update(
      {.step = lane.iteration,
       .seconds = now_ - lane.started,
       .worker =
           {.id = lane.id,
            .batch = lane.batch,
            .start_seconds = lane.started,
            .compute_seconds = lane.compute_seconds,
            .wait_seconds = lane.started - lane.idle_since,
            .exchange_seconds = std::max(0.0, now_ - lane.started - lane.compute_seconds)},
       .learning_rate_factor = decision_->learning_rate_factor,
       .changed = decision_->changed,
       .reason = decision_->reason,
       .words = decision_->words,
       .staleness = staleness});
}

/// Whether somebody came or went.
bool Async::apply_due_changes() {
  bool others = false;
  while (const auto change = run_.schedule.take(step_, now_)) {
    apply(*change, others);
  }
  if (others) {
    splitter_.change_workers(run_.roster());
  }
  return others;
}

void Async::apply(const Occurrence& change, bool& others) {
  bool done = true;
  switch (change.event) {
    case Event::kSpeed:
      run_.fleet.set_cores(change.worker, *change.cores);
      break;
    case Event::kKill:
      done = kill(change.worker);
      others |= done;
      break;
    case Event::kJoin:
      done = join(change.worker);
      others |= done;
      break;
    case Event::kStop:
      done = stop(change.worker);
      break;
    case Event::kContinue:
      done = go_on(change.worker);
      break;
    default:
      ISO_CHECK(false, "a change that clusters do not know");
  }
  if (done) {
    run_.note(change, step_, now_);
  }
}

bool Async::join(std::size_t worker) {
  if (!run_.fleet.join(worker)) {
    return false;
  }
  enter(run_.fleet.members().back());
  return true;
}

bool Async::kill(std::size_t worker) {
  if (!run_.fleet.leave(worker)) {
    return false;
  }
  Lane& lane = lanes_[worker];
  queue_.erase({lane.due, worker});
  lane.activity = Activity::kAway;
  lane.stopped = false;
  reports_ -= std::exchange(lane.report, std::nullopt) ? 1U : 0U;
  make_ready(clocks_.leave(lane.id));
  return true;
}

bool Async::stop(std::size_t worker) {
  Lane& lane = lanes_[worker];
  if (std::exchange(lane.stopped, true)) {
    return false;
  }
  if (queue_.erase({lane.due, worker}) > 0) {
    lane.left = lane.due - now_;
  }
  return true;
}

bool Async::go_on(std::size_t worker) {
  Lane& lane = lanes_[worker];
  if (!std::exchange(lane.stopped, false)) {
    return false;
  }
  if (lane.activity == Activity::kWorking) {
    lane.compute_seconds += now_ + lane.left - lane.due;
    lane.due = now_ + lane.left;
    queue_.emplace(lane.due, worker);
  } else if (lane.activity == Activity::kReady) {
    ready_.push_back(worker);
  }
  return true;
}

}  // namespace

void run_async(Run& run) {
  Async(run).run();
}

}  // namespace isochron::sim
