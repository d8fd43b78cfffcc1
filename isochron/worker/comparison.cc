#include "isochron/worker/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "isochron/io/output_file.h"
#include "isochron/io/run_log_writer.h"
#include "isochron/train/trainer.h"

namespace isochron::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kEndless = 1'000'000'000;  // epochs; steps end the run

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// This worker's samples per second at `batch`. All measure for the same time, so that nobody profits from a machine
/// that others have left.
double speed_at(train::Trainer& trainer, std::int64_t batch, double seconds) {
  trainer.solo_seconds(batch);  // memory for this size is taken here
  trainer.job().barrier();
  double elapsed = 0.0;
  std::int64_t samples = 0;
  while (elapsed < seconds) {
    elapsed += trainer.solo_seconds(batch);
    samples += batch;
  }
  return static_cast<double>(samples) / elapsed;
}

/// How fast each worker is by itself, while all compute at once and nobody waits: what a perfect split would add up to.
/// Samples per second by rank, each measured for `seconds` at about the batch that a proportional split of the global
/// batch gives it, since speed depends on the batch. Collective.
std::vector<double> solo_speeds(train::Trainer& trainer, std::int64_t global_batch, double seconds) {
  constexpr int kPasses = 3;  // the batches of a pass come from the speeds of the one before
  Job& job = trainer.job();
  const auto me = static_cast<std::size_t>(job.rank());
  std::vector<double> speeds(static_cast<std::size_t>(job.size()), 1.0);
  for (int pass = 1; pass <= kPasses; ++pass) {
    const double share = speeds[me] / std::accumulate(speeds.begin(), speeds.end(), 0.0);
    const auto batch = std::max<std::int64_t>(std::llround(share * static_cast<double>(global_batch)), 1);
    std::vector<double> mine(speeds.size());
    mine[me] = speed_at(trainer, batch, pass == kPasses ? seconds : seconds / 4);
    speeds = job.sum(mine);
  }
  return speeds;
}

/// A stage from 0 and from every step at which some worker's speed changes.
std::vector<Stage> stages_of(const sim::ClusterSpec& cluster, std::int64_t steps) {
  std::vector<std::int64_t> first{0};
  for (const sim::Change& change : cluster.changes) {
    if (change.at_step && change.cores && *change.at_step < steps) {
      first.push_back(*change.at_step);
    }
  }
  std::ranges::sort(first);
  first.erase(std::ranges::unique(first).begin(), first.end());
  std::vector<Stage> stages;
  stages.reserve(first.size());
  for (const std::int64_t step : first) {
    stages.push_back({.first_step = step});
  }
  return stages;
}

/// One lane in one round. Its times are those of its own training: the turns of others and evaluations do not count.
class Runner {
 public:
  Runner(const Lane& lane, const ComparisonOptions& options, std::span<const Stage> stages, std::size_t rank)
      : lane_(lane),
        options_(options),
        stages_(stages),
        trainer_(with_updates(training(lane, options, stages, rank))) {}

  void take_turn(std::int64_t steps) {
    trainer_.job().barrier();
    if (asynchronous()) {
      iterate_up_to(trainer_.job().step() + steps);
      return;
    }
    for (std::int64_t i = 0; i < steps; ++i) {
      follow_stage();
      const auto start = Clock::now();
      trainer_.step();
      const double seconds = seconds_since(start);
      StepRecord& record = log_.steps.emplace_back(trainer_.job().last_step());
      record.seconds = seconds;  // the training loop's, which is a little more than the job knows
      const double shift = log_.seconds - record.start_seconds;
      record.start_seconds += shift;
      for (WorkerStep& worker : record.workers) {
        worker.start_seconds += shift;
      }
      log_.seconds += seconds;
      evaluate_if_due(std::ssize(log_.steps));
    }
  }

  const LaneLog& log() const { return log_; }
  const Lane& lane() const { return lane_; }

 private:
  bool asynchronous() const { return !in_step(options_.training.job.sync); }

  /// The updates of all workers are the lane's steps.
  train::Options with_updates(train::Options training) {
    if (asynchronous()) {
      training.job.on_update = [this](const UpdateRecord& record) {
        log_.at.push_back(
            record.epoch * trainer_.steps_per_epoch() + record.position / options_.training.job.global_batch);
        log_.updates.push_back(record);
      };
    }
    return training;
  }

  /// All are together at every evaluation and stage, and in the end.
  void iterate_up_to(std::int64_t last) {
    while (trainer_.job().step() < last) {
      follow_stage();
      const std::int64_t next = std::min({last, next_evaluation(), next_stage()});
      trainer_.barrier_at(next);
      const auto known = std::ssize(log_.updates);
      const auto start = Clock::now();
      while (trainer_.step() && !trainer_.all_together()) {
      }
      const auto added = std::span(log_.updates).subspan(static_cast<std::size_t>(known));
      const auto began = [](const UpdateRecord& update) { return update.worker.start_seconds; };
      const double shift = added.empty() ? 0.0 : log_.seconds - began(std::ranges::min(added, {}, began));
      for (UpdateRecord& update : added) {
        update.worker.start_seconds += shift;
      }
      log_.seconds += seconds_since(start);
      log_.batch_sizes = trainer_.job().batch_sizes();
      evaluate_if_due(trainer_.job().step());
    }
  }

  std::int64_t next_evaluation() {
    const std::int64_t every = options_.evaluate_every;
    return every > 0 ? (trainer_.job().step() / every + 1) * every : options_.steps;
  }

  /// Only the oracle wants to know.
  std::int64_t next_stage() {
    std::int64_t next = options_.steps;
    for (const Stage& stage : stages_) {
      if (lane_.policy == "oracle" && stage.first_step > trainer_.job().step()) {
        next = std::min(next, stage.first_step);
      }
    }
    return next;
  }

  static train::Options training(
      const Lane& lane, const ComparisonOptions& options, std::span<const Stage> stages, std::size_t rank) {
    train::Options training = options.training;
    training.steps = options.steps;
    training.epochs = kEndless;
    training.job.policy = lane.policy;
    training.job.weighting = lane.weighting;
    training.job.rate.rule = lane.rate;
    if (lane.policy == "oracle") {
      training.job.policy = "static";
      const std::vector<double>& solo = stages.front().solo;
      training.job.weight = rank < solo.size() ? solo[rank] : 1.0;  // a server has no share
    }
    return training;
  }

  /// The oracle knows what comes.
  void follow_stage() {
    const std::int64_t step = trainer_.job().step();
    for (const Stage& stage : stages_) {
      if (lane_.policy == "oracle" && stage.first_step == step && step > 0) {
        std::vector<Worker> workers = trainer_.job().workers();
        for (std::size_t k = 0; k < workers.size(); ++k) {
          workers[k].weight = stage.solo[k];
        }
        trainer_.job().change_workers(std::move(workers));
      }
    }
  }

  void evaluate_if_due(std::int64_t done) {
    if (done != options_.steps && (options_.evaluate_every == 0 || done % options_.evaluate_every != 0)) {
      return;
    }
    const train::Evaluation evaluation = trainer_.evaluate();
    log_.evaluations.push_back(
        {.step = done, .seconds = log_.seconds, .accuracy = evaluation.accuracy, .loss = evaluation.loss});
  }

  const Lane& lane_;
  const ComparisonOptions& options_;
  std::span<const Stage> stages_;
  LaneLog log_;
  train::Trainer trainer_;  // last: it adds to the log
};

/// For what is measured before the lanes begin.
train::Options plain_training(const ComparisonOptions& options) {
  train::Options training = options.training;
  training.job.policy = "uniform";
  training.job.sync = Sync::kBsp;
  training.job.async = {};
  return training;
}

void measure_stages(const ComparisonOptions& options, train::Trainer& trainer, std::vector<Stage>& stages) {
  for (Stage& stage : stages) {
    trainer.publish_step(stage.first_step);
    trainer.job().barrier();
    stage.solo = solo_speeds(trainer, options.training.job.global_batch, options.solo_seconds);
    stage.solo.resize(stage.solo.size() - static_cast<std::size_t>(options.training.job.async.servers));
  }
}

void write_log(const ComparisonOptions& options, const Runner& runner, std::int64_t round) {
  std::string name = runner.lane().label;
  std::ranges::replace_if(name, [](char c) { return c == '/' || c == ':' || c == ','; }, '-');
  io::OutputFile file(options.logs / (name + "." + std::to_string(round) + ".jsonl"));
  io::RunLogWriter log(file.stream(), file.path().string());
  RunHeader header{.program = "compare", .version = ISOCHRON_VERSION, .policy = runner.lane().label};
  header.cluster = options.cluster.name;
  header.global_batch = options.training.job.global_batch;
  header.seed = options.training.job.seed;
  header.total_steps = options.steps;
  header.model = options.training.model;
  header.dataset = options.training.dataset;
  if (options.training.job.sync != Sync::kBsp) {
    header.sync = to_string(options.training.job.sync);
    header.total_steps = 0;
  }
  for (std::size_t k = 0; k < options.cluster.workers.size(); ++k) {
    header.workers.push_back(
        {.id = k, .name = options.cluster.workers[k].name, .kind = options.cluster.workers[k].kind});
  }
  log.write(header);
  const LaneLog& lane = runner.log();
  auto evaluation = lane.evaluations.begin();
  // `done` steps of the global batch are over after the record, which ended at `end`.
  const auto write = [&](const auto& record, double end, std::int64_t done) {
    log.write(record);
    if (evaluation != lane.evaluations.end() && evaluation->step <= done) {
      log.write(EvaluationRecord{
          .step = record.step + 1, .seconds = end, .loss = evaluation->loss, .accuracy = evaluation->accuracy});
      ++evaluation;
    }
  };
  for (const StepRecord& step : lane.steps) {
    write(step, step.start_seconds + step.seconds, step.step + 1);
  }
  for (std::size_t i = 0; i < lane.updates.size(); ++i) {
    const UpdateRecord& update = lane.updates[i];
    const bool last = i + 1 == lane.updates.size();
    write(update, update.worker.start_seconds + update.seconds, last ? options.steps : lane.at[i + 1]);
  }
  file.commit();
}

/// All lanes once, in turns.
class Round {
 public:
  Round(const ComparisonOptions& options, std::int64_t number) : options_(options), number_(number) {
    stages_ = stages_of(options.cluster, options.steps);
    train::Trainer probe(plain_training(options));
    rank_ = probe.job().rank();
    if (options.solo_seconds > 0) {
      say("every worker by itself");
      measure_stages(options, probe, stages_);
    }
    for (const Lane& lane : options.lanes) {
      runners_.push_back(std::make_unique<Runner>(lane, options, stages_, static_cast<std::size_t>(rank_)));
    }
  }

  void run() {
    for (std::int64_t step = 0; step < options_.steps; step += options_.turn) {
      for (const auto& runner : runners_) {
        say("step " + std::to_string(step) + " of " + std::to_string(options_.steps) + ", " + runner->lane().label);
        runner->take_turn(std::min(options_.turn, options_.steps - step));
      }
    }
  }

  void report(ComparisonResults& results) const {
    results.first = rank_ == 0;
    results.stages = stages_;
    results.rounds.emplace_back();
    for (const auto& runner : runners_) {
      const Lane& lane = runner->lane();
      results.rounds.back().push_back(make_result(lane.label, runner->log(), stages_, options_.target_accuracy));
      if (lane.policy == "oracle") {
        results.bound = noise_bound(runner->log(), stages_);
      }
      if (!options_.logs.empty() && rank_ == 0) {
        write_log(options_, *runner, number_);
      }
    }
  }

 private:
  void say(const std::string& words) const {
    if (options_.say && rank_ == 0) {
      options_.say("round " + std::to_string(number_) + " of " + std::to_string(options_.rounds) + ": " + words);
    }
  }

  const ComparisonOptions& options_;
  std::int64_t number_;
  int rank_ = 0;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace

ComparisonResults compare(const ComparisonOptions& options) {
  ComparisonResults results;
  for (std::int64_t number = 1; number <= options.rounds; ++number) {
    Round round(options, number);
    round.run();
    round.report(results);
  }
  for (std::size_t lane = 0; lane < options.lanes.size(); ++lane) {
    std::vector<LaneResult> rounds;
    rounds.reserve(results.rounds.size());
    for (const auto& round : results.rounds) {
      rounds.push_back(round[lane]);
    }
    results.lanes.push_back(median(rounds));
  }
  return results;
}

}  // namespace isochron::worker
