#include "isochron/worker/comparison.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "isochron/io/output_file.h"
#include "isochron/io/run_log_writer.h"
#include "isochron/io/step_file.h"
#include "isochron/train/trainer.h"
#include "isochron/worker/run_header.h"
#include "isochron/worker/solo.h"

namespace isochron::worker {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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
  for (const std::int64_t step : first) {
    stages.push_back({.first_step = step});
  }
  return stages;
}

/// One lane in one round.
class Runner {
 public:
  Runner(const Lane& lane, const ComparisonOptions& options, std::span<const Stage> stages, std::size_t rank)
      : lane_(lane), options_(options), stages_(stages), trainer_(training(lane, options, stages, rank)) {}

  void take_turn(std::int64_t steps) {
    trainer_.job().barrier();
    for (std::int64_t i = 0; i < steps; ++i) {
      follow_stage();
      const auto start = Clock::now();
      trainer_.step();
      const double seconds = seconds_since(start);
      log_.seconds += seconds;
      log_.first_step = log_.steps.empty() ? seconds : log_.first_step;
      log_.steps.push_back(trainer_.job().last_step());
      evaluate_if_due();
    }
  }

  const LaneLog& log() const { return log_; }
  const Lane& lane() const { return lane_; }
  bool is_first() { return trainer_.job().is_first(); }

 private:
  static train::Options training(const Lane& lane, const ComparisonOptions& options, std::span<const Stage> stages) {
    train::Options training = options.training;
    training.steps = options.steps;
    training.epochs = std::numeric_limits<std::int32_t>::max();
    training.job.policy = lane.policy;
    training.job.weighting = lane.weighting;
    training.job.rate.rule = lane.rate;
    if (lane.policy == "oracle") {
      training.job.policy = "static";
      training.job.weight = stages.front().solo[rank];
    }
    return training;
  }

  /// The oracle knows what comes.
  void follow_stage() {
    const std::int64_t step = trainer_.job().step();
    for (const Stage& stage : stages_) {
      if (lane_.policy == "oracle" && stage.first_step == step && step > 0) {
        std::vector<Worker> workers = trainer_.job().controller().roster().workers;
        for (std::size_t k = 0; k < workers.size(); ++k) {
          workers[k].weight = stage.solo[k];
        }
        trainer_.job().controller().change_workers(std::move(workers));
      }
    }
  }

  void evaluate_if_due() {
    const auto done = std::ssize(log_.steps);
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
  train::Trainer trainer_;
  LaneLog log_;
};

void measure_stages(const ComparisonOptions& options, std::vector<Stage>& stages) {
  train::Options training = options.training;
  training.job.policy = "uniform";
  train::Trainer trainer(training);
  for (Stage& stage : stages) {
    trainer.publish_step(stage.first_step);
    trainer.job().barrier();
    stage.solo = solo_speeds(trainer, options.training.job.global_batch, options.solo_seconds);
  }
}

void write_log(const ComparisonOptions& options, const Runner& runner, std::size_t round) {
  std::string name = runner.lane().label;
  std::ranges::replace_if(name, [](char c) { return c == '/' || c == ':' || c == ','; }, '-');
  io::OutputFile file(options.logs / (name + "." + std::to_string(round + 1) + ".jsonl"));
  io::RunLogWriter log(file.stream(), file.path().string());
  train::Options training = options.training;
  training.job.policy = runner.lane().label;
  log.write(run_header("compare", training, options.cluster));
  for (const StepRecord& step : runner.log().steps) {
    log.write(step);
  }
  file.commit();
}

}  // namespace

ComparisonResults compare(const ComparisonOptions& options) {
  ComparisonResults results;
  const auto say = [&](const std::string& words) {
    if (options.say) {
      options.say(words);
    }
  };
  for (std::int64_t round = 0; round < options.rounds; ++round) {
    const std::string which = "round " + std::to_string(round + 1) + " of " + std::to_string(options.rounds);
    results.stages = stages_of(options.cluster, options.steps);
    if (options.solo_seconds > 0) {
      say(which + ": every worker by itself");
      measure_stages(options, results.stages);
    }
    std::vector<std::unique_ptr<Runner>> runners;
    for (const Lane& lane : options.lanes) {
      runners.push_back(std::make_unique<Runner>(lane, options, results.stages));
    }
    for (std::int64_t step = 0; step < options.steps; step += options.turn) {
      for (const auto& runner : runners) {
        say(which + ", step " + std::to_string(step) + " of " + std::to_string(options.steps) + ": " +
            runner->lane().label);
        runner->take_turn(std::min(options.turn, options.steps - step));
      }
    }
    results.rounds.emplace_back();
    for (const auto& runner : runners) {
      results.rounds.back().push_back(
          make_result(runner->lane().label, runner->log(), results.stages, options.target_accuracy));
      if (runner->lane().policy == "oracle") {
        results.bound = noise_bound(runner->log(), results.stages);
      }
      if (!options.logs.empty() && runner->is_first()) {
        write_log(options, *runner, static_cast<std::size_t>(round));
      }
    }
  }
  for (std::size_t lane = 0; lane < options.lanes.size(); ++lane) {
    std::vector<LaneResult> rounds;
    for (const auto& round : results.rounds) {
      rounds.push_back(round[lane]);
    }
    results.lanes.push_back(median(rounds));
  }
  return results;
}

}  // namespace isochron::worker
