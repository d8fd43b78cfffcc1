#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "isochron/cli/config_option.h"
#include "isochron/cli/program.h"
#include "isochron/cli/recorder.h"
#include "isochron/cli/table.h"
#include "isochron/train/trainer.h"
#include "isochron/worker/commands.h"
#include "isochron/worker/live_log.h"
#include "isochron/worker/train_request.h"
#include "isochron/worker/train_results.h"

namespace isochron::worker {
namespace {

using cli::fixed;

RunHeader header_of(const train::Options& options, const Job& job) {
  RunHeader header{.program = "train", .version = ISOCHRON_VERSION, .policy = options.job.policy};
  header.global_batch = options.job.global_batch;
  header.seed = options.job.seed;
  for (const Worker& worker : job.controller().roster().workers) {
    header.workers.push_back({.id = worker.id, .name = "worker-" + std::to_string(worker.id), .kind = worker.kind});
  }
  return header;
}

/// What rank 0 shows and writes while the run goes on.
class Reporter {
 public:
  /// Throws std::invalid_argument if a file cannot be written.
  Reporter(TrainRequest& request, const train::Options& options, train::Trainer& trainer)
      : request_(request),
        progress_(
            std::cerr,
            request.progress_style(),
            {.total_steps = trainer.total_steps(), .steps_per_epoch = trainer.steps_per_epoch()}) {
    const RunHeader header = header_of(options, trainer.job());
    request.output.open();
    trace_ = std::make_unique<cli::Recorder>(header, "", request.trace);
    if (!request.log.empty()) {
      log_.emplace(request.log, header, trainer.job().step());
    }
  }

  void step(const StepRecord& record) {
    if (log_) {
      log_->write(record);
    }
    trace_->record(record);
    progress_.show(record);
  }

  void say(const std::string& line) {
    if (!request_.quiet) {
      progress_.say(line);
    }
  }

  void finish(const TrainResults& results, const nlohmann::ordered_json& details) {
    progress_.finish();
    trace_->commit();
    if (!request_.quiet && !request_.output.takes_standard_output()) {
      std::cout << summary(results);
    }
    request_.output.write("train", details, nlohmann::ordered_json::array({to_json(results)}));
  }

 private:
  TrainRequest& request_;
  Progress progress_;
  std::unique_ptr<cli::Recorder> trace_;
  std::optional<LiveLog> log_;
};

/// Rank 0's reporter; the others have none. If it cannot be made, all workers end: rank 0 says why.
std::unique_ptr<Reporter> make_reporter(TrainRequest& request, const train::Options& options, train::Trainer& trainer) {
  std::unique_ptr<Reporter> reporter;
  std::optional<std::invalid_argument> refusal;
  if (trainer.job().is_first()) {
    try {
      reporter = std::make_unique<Reporter>(request, options, trainer);
    } catch (const std::invalid_argument& error) {
      refusal = error;
    }
  }
  const bool refused = trainer.job().sum({refusal ? 1.0 : 0.0}).front() > 0.0;
  if (refusal) {
    throw std::invalid_argument(*refusal);
  }
  if (refused) {
    throw CLI::RuntimeError(cli::kBadUsage);
  }
  return reporter;
}

bool evaluation_is_due(const TrainRequest& request, train::Trainer& trainer) {
  if (request.evaluate_every == 0 || trainer.job().stopping()) {
    return false;
  }
  const std::int64_t done = trainer.job().step();
  return done % (request.evaluate_every * trainer.steps_per_epoch()) == 0 || done == trainer.total_steps();
}

void train_all(const TrainRequest& request, train::Trainer& trainer, Reporter* reporter, TrainResults& results) {
  while (!results.seconds_to_accuracy() && trainer.step()) {
    const StepRecord& record = trainer.job().last_step();
    results.meter.add(record);
    results.loss = record.loss;
    results.batch_sizes = trainer.job().batch_sizes();
    if (reporter != nullptr) {
      reporter->step(record);
    }
    if (!evaluation_is_due(request, trainer)) {
      continue;
    }
    const train::Evaluation evaluation = trainer.evaluate();
    const std::int64_t done = trainer.job().step();
    results.evaluations.push_back({.step = done, .seconds = results.meter.seconds(), .evaluation = evaluation});
    if (reporter != nullptr) {
      reporter->say(
          "step " + std::to_string(done) + ": test accuracy " + fixed(evaluation.accuracy, 4) + ", test loss " +
          fixed(evaluation.loss, 4) + ", " + fixed(results.meter.seconds(), 1) + " s of training");
    }
  }
}

nlohmann::ordered_json details_of(const train::Options& options, const Job& job) {
  return {
      {"model", options.model},
      {"dataset", options.dataset},
      {"workers", job.size()},
      {"global_batch", options.job.global_batch},
      {"step", job.step()},
      {"seed", options.job.seed}};
}

void run(TrainRequest& request, CLI::App& command) {
  cli::apply_config(command, request.config);
  request.check();
  train::Options options = request.training.checked(command);
  options.job.handle_signals = true;
  train::Trainer trainer(options, [](const std::string& words) { std::cerr << "isochron: " << words << '\n'; });
  Job& job = trainer.job();
  const std::unique_ptr<Reporter> reporter = make_reporter(request, options, trainer);
  if (reporter && job.step() > 0) {
    reporter->say("resumed at step " + std::to_string(job.step()));
  }

  TrainResults results{.policy = options.job.policy, .target_accuracy = request.target_accuracy};
  train_all(request, trainer, reporter.get(), results);
  if (results.seconds_to_accuracy()) {
    trainer.save();
  }
  const int signal = job.stop_signal();
  if (reporter) {
    if (signal != 0) {
      const std::string where = options.checkpoints.empty() ? "" : ", saved in " + options.checkpoints.string();
      reporter->say(
          "stopped by signal " + std::to_string(signal) + " after " + std::to_string(job.step()) + " steps" + where);
    }
    reporter->finish(results, details_of(options, job));
  }
  if (signal != 0) {
    throw CLI::RuntimeError(128 + signal);
  }
}

}  // namespace

void add_train(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("train", "Train as one worker of a job, or alone");
  const auto request = std::make_shared<TrainRequest>();
  request->add_options(*command);
  command->footer(
      "SIGTERM and SIGINT let the step finish and save a checkpoint; the exit status is then 143 or 130.\n"
      "Examples:\n"
      "  isochron train --dataset synthetic --epochs 2\n"
      "  isochron launch --cluster hl8 -- train --global-batch 512 --policy isochron\n"
      "  mpirun -n 4 isochron train --config mine.toml --checkpoints saved --resume auto");
  command->final_callback([request, command] { run(*request, *command); });
}

}  // namespace isochron::worker
