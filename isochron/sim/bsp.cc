#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "isochron/sim/replicas.h"
#include "isochron/sim/ring.h"
#include "isochron/sim/run.h"
#include "isochron/sim/splitter.h"

namespace isochron::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// An oracle is no policy: it says what each worker takes, and the policy of the replicas does not count.
JobSettings settings_of(const Run& run) {
  const Options& options = run.options;
  return {
      .global_batch = options.global_batch,
      .policy = is_oracle(run.policy) ? "uniform" : run.policy,
      .rate = options.rate,
      .seed = options.seed,
      .sync = options.sync,
      .rounds = {.steps = options.round_steps, .network_share = options.network_share}};
}

/// Bulk-synchronous parallel: steps one after another, each as long as its slowest worker and the exchange. A round is
/// such a step of several global batches.
class Bsp {
 public:
  explicit Bsp(Run& run);

  void run() {
    for (step_ = 0; step_ < run_.options.steps; step_ += plan_->local_steps, ++number_) {
      const double began = now_;
      apply_due_changes();
      while (!attempt()) {
      }
      finish_step(now_ - began);
    }
  }

 private:
  void apply_due_changes();
  bool attempt();
  void advance(std::int64_t step);
  void plan();
  void compute_round();
  void compute();
  void find_end();
  [[nodiscard]] double exchange_after(const Network& network, double bucket) const;
  bool interrupt(const Occurrence& kill);
  void pause_or_go_on(const Occurrence& change);
  bool kill(const Occurrence& change);
  void come_together();
  void finish_step(double seconds);
  void measure();
  void record(StepRecord record, double seconds) const;
  [[nodiscard]] bool in_rounds() const { return run_.options.sync == Sync::kLocal; }

  Run& run_;
  std::optional<Splitter> oracle_;
  Replicas replicas_;
  bool samples_known_;
  std::int64_t step_ = 0;    // global batches before it
  std::int64_t number_ = 0;  // steps or rounds before it
  double now_ = 0.0;
  std::vector<bool> stopped_;          // by the worker's number in the specification
  std::vector<Occurrence> postponed_;  // happened within a step, take effect after it

  // The step in progress; lists are in the order of the members.
  const StepPlan* plan_ = nullptr;
  double start_ = 0.0;
  double end_ = 0.0;
  const Decision* decision_ = nullptr;
  std::vector<std::int64_t> batch_sizes_;  // samples
  std::vector<double> seconds_;            // from the start to the worker's last gradient; never, while it is stopped
  std::vector<double> left_;               // computing time left when the worker was stopped
  double longest_ = 0.0;                   // of seconds_
  std::vector<StepReport> reports_;
};

Bsp::Bsp(Run& run)
    : run_(run),
      replicas_(
          settings_of(run),
          run.roster(),
          [&run](Replica& replica) {
            if (run.lengths && !is_oracle(run.policy)) {
              run.lengths->open(replica);
            } else {
              replica.open_stream();
            }
          },
          run.options.replica_each),
      samples_known_(run.options.samples() > 0),
      stopped_(run.cluster.workers.size(), false) {
  if (is_oracle(run.policy)) {
    oracle_.emplace(
        run.policy, Roster{.workers = run.roster(), .global_batch = run.options.global_batch}, run.options.rate);
  } else {
    run.meter = Meter(run.options.global_batch, replicas_.any().units_per_sample());
  }
}

/// What happens between two steps.
void Bsp::apply_due_changes() {
  bool others = false;
  std::vector<std::size_t> newcomers;
  const auto apply = [&](const Occurrence& change) {
    if (change.event == Event::kKill) {
      if (std::ranges::find(newcomers, change.worker) != newcomers.end()) {
        come_together();  // it was there, if not for long
        newcomers.clear();
      }
      others |= kill(change);
      return;
    }
    if (change.event == Event::kJoin) {
      if (!run_.fleet.join(change.worker)) {
        return;
      }
      others = true;
      newcomers.push_back(change.worker);
    } else if (change.cores) {
      run_.fleet.set_cores(change.worker, *change.cores);
    } else {
      stopped_[change.worker] = change.event == Event::kStop;
    }
    run_.note(change, step_, now_);
  };
  std::ranges::for_each(postponed_, apply);
  postponed_.clear();
  while (const auto change = run_.schedule.take(step_, now_)) {
    apply(*change);
  }
  if (others) {
    come_together();
  }
}

void Bsp::come_together() {
  const std::vector<Worker> workers = run_.roster();
  replicas_.come_together(workers);
  if (oracle_) {
    oracle_->change_workers(workers);
  }
}

/// Whether the worker was there. The others go on when they have noticed.
bool Bsp::kill(const Occurrence& change) {
  stopped_[change.worker] = false;
  if (!run_.fleet.leave(change.worker)) {
    return false;
  }
  run_.note(change, step_, now_);
  now_ += run_.options.failure_seconds;
  return true;
}

/// Whether the step came to its end; a kill interrupts it, and it has to be computed again without that worker.
bool Bsp::attempt() {
  compute();
  while (run_.schedule.next_seconds() < end_) {
    const Occurrence change = *run_.schedule.take(step_, kNever);
    if (change.event == Event::kKill) {
      if (interrupt(change)) {
        return false;
      }
    } else if (change.event == Event::kStop || change.event == Event::kContinue) {
      pause_or_go_on(change);
    } else {
      postponed_.push_back(change);
    }
  }
  if (end_ == kNever) {
    throw std::invalid_argument(
        "cluster \"" + run_.cluster.name + "\": step " + std::to_string(step_) +
        " waits for ever for a stopped worker; permitted: a later continue or kill of it with at_seconds");
  }
  now_ = end_;
  return true;
}

void Bsp::advance(std::int64_t step) {
  for (const Member& member : run_.fleet.members()) {
    run_.fleet.advance(member.index, step);
  }
}

void Bsp::plan() {
  const std::int64_t batches = std::min(replicas_.any().round_steps(), run_.options.steps - step_);
  const std::int64_t samples = batches * run_.options.global_batch;
  const bool by_cost = run_.lengths && run_.lengths->by_cost();
  if (oracle_) {
    decision_ = &oracle_->decide(run_.fleet);
    batch_sizes_ = by_cost ? run_.lengths->deal_for_oracle(run_.fleet) : deal(samples, decision_->batch_sizes);
    plan_ = &replicas_.plan_parts(batch_sizes_);
  } else {
    plan_ = &replicas_.plan(by_cost ? 0 : samples);
    decision_ = &plan_->decision;
    batch_sizes_ = plan_->batches();
  }
  if (run_.lengths && !(oracle_ && by_cost)) {
    run_.lengths->follow(*plan_);
  }
}

/// Local steps one after another, each with its own noise.
void Bsp::compute_round() {
  const auto& members = run_.fleet.members();
  std::ranges::fill(left_, 0.0);
  for (std::int64_t local = 0; local < plan_->local_steps; ++local) {
    advance(step_ + local);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto parts = Rounds::parts(plan_->slices[i], plan_->local_steps);
      const bool takes = local < std::ssize(parts);
      left_[i] += takes ? run_.fleet.seconds(members[i].index, parts[static_cast<std::size_t>(local)].size()) : 0.0;
    }
  }
}

void Bsp::compute() {
  start_ = now_;
  const auto& members = run_.fleet.members();
  advance(step_);
  plan();
  seconds_.resize(members.size());
  left_.resize(members.size());
  if (in_rounds()) {
    compute_round();
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!in_rounds()) {
      left_[i] = run_.lengths ? run_.fleet.seconds_of_amount(members[i].index, run_.lengths->amounts()[i])
                              : run_.fleet.seconds(members[i].index, batch_sizes_[i]);
      left_[i] += run_.fleet.cold_seconds(members[i].index, batch_sizes_[i]);
    }
    seconds_[i] = stopped_[members[i].index] ? kNever : left_[i];
  }
  find_end();
}

void Bsp::find_end() {
  longest_ = *std::ranges::max_element(seconds_);
  const Network& network = run_.options.network;
  const double bucket = bucket_seconds(network, run_.cluster, run_.fleet.members());
  end_ = longest_ == kNever ? kNever : start_ + longest_ + exchange_after(network, bucket);
}

/// A round has nothing to overlap with.
double Bsp::exchange_after(const Network& network, double bucket) const {
  const auto buckets = static_cast<double>(network.buckets);
  return in_rounds() ? buckets * bucket : exposed_seconds(network, bucket, longest_);
}

bool Bsp::interrupt(const Occurrence& change) {
  const double before = now_;
  now_ = std::max(now_, change.at_seconds);
  if (!kill(change)) {
    now_ = before;
    return false;
  }
  come_together();
  return true;
}

void Bsp::pause_or_go_on(const Occurrence& change) {
  const bool stop = change.event == Event::kStop;
  if (stopped_[change.worker] == stop) {
    return;
  }
  stopped_[change.worker] = stop;
  run_.note(change, step_, change.at_seconds);
  const auto& members = run_.fleet.members();
  const auto member = std::ranges::find(members, change.worker, &Member::index);
  if (member == members.end()) {
    return;
  }
  const auto i = static_cast<std::size_t>(member - members.begin());
  const double elapsed = std::max(0.0, change.at_seconds - start_);
  if (stop) {
    left_[i] = std::max(0.0, seconds_[i] - elapsed);
    seconds_[i] = kNever;
  } else {
    seconds_[i] = elapsed + left_[i];
  }
  find_end();
}

void Bsp::finish_step(double seconds) {
  run_.meter.add_step(run_.fleet, seconds, plan_->local_steps);
  run_.meter.add_round(seconds_, batch_sizes_, decision_->changed);
  run_.meter.follow_balance(number_, run_.fleet, *decision_);
  measure();
  StepRecord done = replicas_.complete(reports_, now_ - start_);
  if (run_.recorder.step) {
    record(std::move(done), seconds);
  }
  const auto& members = run_.fleet.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    run_.fleet.note_computed(members[i].index, batch_sizes_[i]);
  }
  if (run_.lengths) {
    run_.lengths->finish();
  }
  if (oracle_) {
    oracle_->observe({.step = number_});
  }
  if (!samples_known_) {
    replicas_.end_epoch();
  }
}

/// The workers' clocks begin with the attempt, so that times are as exact as they were simulated.
void Bsp::measure() {
  reports_.clear();
  const auto& members = run_.fleet.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const WorkerTelemetry seen = run_.report(members[i], batch_sizes_[i], seconds_[i]);
    reports_.push_back(
        {.seconds = seen.seconds,
         .warm = !seen.cold,
         .usage = seen.usage,
         .exchange = std::max(0.0, now_ - start_ - longest_)});
  }
}

/// A run is one epoch, whose steps begin with the first attempt.
void Bsp::record(StepRecord record, double seconds) const {
  record.epoch = samples_known_ ? 0 : -1;
  record.position = samples_known_ ? step_ * run_.options.global_batch : -1;
  record.start_seconds = now_ - seconds;
  record.seconds = seconds;
  record.changed = decision_->changed;
  record.reason = decision_->reason;
  record.words = decision_->words;
  record.loss = kUnknown;
  for (WorkerStep& worker : record.workers) {
    worker.start_seconds = start_;
  }
  run_.recorder.step(record);
}

}  // namespace

void run_bsp(Run& run) {
  Bsp(run).run();
}

}  // namespace isochron::sim
