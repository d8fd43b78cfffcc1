#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "isochron/core/replica/rounds.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/sim/ring.h"
#include "isochron/sim/run.h"

namespace isochron::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Bulk-synchronous parallel: steps one after another, each as long as its slowest worker and the exchange. A round is
/// such a step of several global batches.
class Bsp {
 public:
  explicit Bsp(Run& run)
      : run_(run),
        rounds_(run.options.round_steps, run.options.network_share),
        samples_known_(run.options.samples() > 0),
        stopped_(run.cluster.workers.size(), false) {}

  void run() {
    for (step_ = 0; step_ < run_.options.steps; step_ += batches_, ++number_) {
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
  void compute_round();
  void compute();
  void find_end();
  [[nodiscard]] double exchange_after(const Network& network, double bucket) const;
  bool interrupt(const Occurrence& kill);
  void pause_or_go_on(const Occurrence& change);
  bool kill(const Occurrence& change);
  void finish_step(double seconds);
  void finish_round();
  void record_step(double seconds) const;
  [[nodiscard]] bool in_rounds() const { return run_.options.sync == Sync::kLocal; }

  Run& run_;
  Rounds rounds_;
  bool samples_known_;
  std::int64_t step_ = 0;    // global batches before it
  std::int64_t number_ = 0;  // steps or rounds before it
  double now_ = 0.0;
  std::vector<bool> stopped_;          // by the worker's number in the specification
  std::vector<Occurrence> postponed_;  // happened within a step, take effect after it

  // The step in progress; lists are in the order of the members.
  std::int64_t batches_ = 1;  // global batches of it
  double start_ = 0.0;
  double end_ = 0.0;
  const Decision* decision_ = nullptr;
  std::vector<std::int64_t> batch_sizes_;  // samples
  std::vector<double> seconds_;            // from the start to the worker's last gradient; never, while it is stopped
  std::vector<double> left_;               // computing time left when the worker was stopped
  double longest_ = 0.0;                   // of seconds_
  StepTelemetry telemetry_;
};

/// What happens between two steps.
void Bsp::apply_due_changes() {
  bool others = false;
  const auto apply = [&](const Occurrence& change) {
    if (change.event == Event::kKill) {
      others |= kill(change);
      return;
    }
    if (change.event == Event::kJoin) {
      if (!run_.fleet.join(change.worker)) {
        return;
      }
      others = true;
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
    run_.change_workers();
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

/// Local steps one after another, each with its own noise.
void Bsp::compute_round() {
  const auto& members = run_.fleet.members();
  batch_sizes_ = deal(batches_ * run_.options.global_batch, decision_->batch_sizes);
  std::ranges::fill(left_, 0.0);
  for (std::int64_t local = 0; local < batches_; ++local) {
    advance(step_ + local);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto parts = Rounds::parts({.first = 0, .last = batch_sizes_[i]}, batches_);
      const bool takes = local < std::ssize(parts);
      left_[i] += takes ? run_.fleet.seconds(members[i].index, parts[static_cast<std::size_t>(local)].size()) : 0.0;
    }
  }
}

void Bsp::compute() {
  start_ = now_;
  const auto& members = run_.fleet.members();
  advance(step_);
  batches_ = in_rounds() ? std::min(rounds_.steps(), run_.options.steps - step_) : 1;
  decision_ = &run_.splitter.decide(run_.fleet);
  batch_sizes_ = decision_->batch_sizes;
  if (run_.lengths) {
    const auto& shares = run_.lengths->deal(run_.splitter, run_.fleet, *decision_);
    std::ranges::transform(shares, batch_sizes_.begin(), &LengthShares::Share::samples);
  }
  seconds_.resize(members.size());
  left_.resize(members.size());
  if (in_rounds()) {
    compute_round();
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!in_rounds()) {
      left_[i] = run_.lengths ? run_.fleet.seconds_of_amount(members[i].index, run_.lengths->shares()[i].amount)
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
  run_.change_workers();
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
  run_.meter.add_step(run_.fleet, seconds, batches_);
  run_.meter.add_round(seconds_, batch_sizes_, decision_->changed);
  run_.meter.follow_balance(number_, run_.fleet, *decision_);
  if (run_.recorder.step) {
    record_step(seconds);
  }
  telemetry_.step = number_;
  telemetry_.workers.clear();
  const auto& members = run_.fleet.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    telemetry_.workers.push_back(run_.report(members[i], batch_sizes_[i], seconds_[i]));
    run_.fleet.note_computed(members[i].index, batch_sizes_[i]);
  }
  if (run_.lengths) {
    run_.lengths->finish(run_.splitter, telemetry_);
  }
  if (in_rounds()) {
    finish_round();
  }
  run_.splitter.observe(telemetry_);
}

void Bsp::finish_round() {
  std::vector<StepReport> reports;
  reports.reserve(seconds_.size());
  for (const double seconds : seconds_) {
    reports.push_back({.seconds = seconds, .exchange = std::max(0.0, now_ - start_ - longest_)});
  }
  rounds_.observe(reports, batches_);
  if (run_.units_per_sample > 1) {
    Rounds::bring_to_step(telemetry_, batches_);
  }
}

void Bsp::record_step(double seconds) const {
  StepRecord record{
      .step = number_,
      .epoch = samples_known_ ? 0 : -1,
      .position = samples_known_ ? step_ * run_.options.global_batch : -1,
      .start_seconds = now_ - seconds,
      .seconds = seconds,
      .workers = {},
      .learning_rate_factor = decision_->learning_rate_factor,
      .changed = decision_->changed,
      .reason = decision_->reason,
      .words = decision_->words};
  const auto& members = run_.fleet.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    record.workers.push_back(
        {.id = members[i].id,
         .batch = batch_sizes_[i],
         .start_seconds = start_,
         .compute_seconds = seconds_[i],
         .wait_seconds = longest_ - seconds_[i],
         .exchange_seconds = std::max(0.0, now_ - start_ - longest_)});
  }
  run_.recorder.step(record);
}

}  // namespace

void run_bsp(Run& run) {
  Bsp(run).run();
}

}  // namespace isochron::sim
