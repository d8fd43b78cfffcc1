#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "isochron/cli/config_option.h"
#include "isochron/cli/program.h"
#include "isochron/cli/recorder.h"
#include "isochron/cli/table.h"
#include "isochron/core/error.h"
#include "isochron/emulate/job_folder.h"
#include "isochron/io/join_requests.h"
#include "isochron/io/worker_phase.h"
#include "isochron/io/worker_variables.h"
#include "isochron/serve/run_server.h"
#include "isochron/train/trainer.h"
#include "isochron/worker/commands.h"
#include "isochron/worker/history.h"
#include "isochron/worker/live_log.h"
#include "isochron/worker/train_request.h"
#include "isochron/worker/train_results.h"

namespace isochron::worker {
namespace {

using cli::fixed;

RunHeader header_of(const train::Options& options, train::Trainer& trainer) {
  RunHeader header{.program = "train", .version = ISOCHRON_VERSION, .policy = options.job.policy};
  if (const char* const cluster = std::getenv(io::kClusterVariable)) {
    header.cluster = cluster;
  }
  header.global_batch = options.job.global_batch;
  header.seed = options.job.seed;
  header.samples_per_epoch = trainer.samples_per_epoch();
  if (options.job.sync == Sync::kBsp) {
    header.total_steps = trainer.total_steps();
  } else {
    header.sync = to_string(options.job.sync);
  }
  header.model = options.model;
  header.dataset = options.dataset;
  header.workers = members_of(trainer.job().workers());
  return header;
}

void complain_line(const std::string& words) {
  std::cerr << "isochron: " + words + "\n";
}

/// What the first worker shows and writes while the run goes on.
class Reporter {
 public:
  /// Throws std::invalid_argument if a file cannot be written.
  Reporter(TrainRequest& request, const train::Options& options, train::Trainer& trainer, LiveLog::Begin begin)
      : request_(request),
        trainer_(trainer),
        global_batch_(options.job.global_batch),
        in_rounds_(options.job.sync == Sync::kLocal),
        progress_(
            std::cerr,
            request.progress_style(),
            {.total_steps = trainer.total_steps(), .steps_per_epoch = trainer.steps_per_epoch()}) {
    const RunHeader header = header_of(options, trainer);
    request.output.open();
    trace_ = std::make_unique<cli::Recorder>(header, "", request.trace);
    if (!request.log.empty()) {
      log_.emplace(request.log, header, trainer.job().next_record(), begin, complain_line);
    }
    serve(header);
  }

  /// Empty unless the log cannot be written.
  [[nodiscard]] std::string log_trouble() const { return log_ ? log_->trouble() : ""; }

  /// What has not been written yet.
  void write(const History& history) {
    known_ = history.for_each_since(known_, [this](const io::RunLogLine& line) {
      if (log_) {
        log_->write(line);
      }
      if (server_) {
        std::visit([this](const auto& record) { show(record); }, line);
      }
      if (const auto* const step = std::get_if<StepRecord>(&line)) {
        trace_->record(*step);
        progress_.show(shown(*step));
      } else if (const auto* const update = std::get_if<UpdateRecord>(&line)) {
        trace_->record(*update);
        progress_.show(shown(*update));
      } else if (const auto* const event = std::get_if<EventRecord>(&line)) {
        trace_->record(*event);
        say("step " + std::to_string(event->step) + ": " + event->event + ", " + event->words);
      }
    });
  }

  void say(const std::string& line) {
    if (!request_.quiet) {
      progress_.say(line);
    }
  }

  void finish(const TrainResults& results, const nlohmann::ordered_json& details) {
    progress_.finish();
    trace_->commit();
    if (log_) {
      log_->end();
    }
    if (!request_.quiet && !request_.output.takes_standard_output()) {
      std::cout << summary(results);
    }
    request_.output.write("train", details, nlohmann::ordered_json::array({to_json(results)}));
  }

 private:
  ShownStep shown(const StepRecord& record) {
    ShownStep step{
        .step = in_rounds_ ? first_batch(record) : record.step, .seconds = record.seconds, .loss = record.loss};
    for (const WorkerStep& worker : record.workers) {
      step.batch_sizes.push_back(worker.batch);
    }
    if (in_rounds_) {
      const std::int64_t samples = std::accumulate(step.batch_sizes.begin(), step.batch_sizes.end(), std::int64_t{0});
      step.steps = (samples + global_batch_ - 1) / global_batch_;
    }
    return step;
  }

  /// The global batch in which the record's samples begin.
  template <class Record>
  std::int64_t first_batch(const Record& record) {
    return record.epoch * trainer_.steps_per_epoch() + record.position / global_batch_;
  }

  /// The step of the global batch that the update is part of, as long as the workers take about equally long with their
  /// batches.
  ShownStep shown(const UpdateRecord& record) {
    return {
        .step = first_batch(record),
        .seconds = record.seconds,
        .loss = record.loss,
        .batch_sizes = trainer_.job().batch_sizes()};
  }

  template <class Record>
  void show(const Record& record) {
    if constexpr (!std::is_same_v<Record, RunHeader>) {
      server_->add(record);
    }
  }

  void serve(const RunHeader& header) {
    if (request_.serve_port < 0) {
      return;
    }
    serve::ServeOptions options = request_.serve;
    options.port = request_.serve_port;
    try {
      server_ = std::make_unique<serve::RunServer>(header, options);
    } catch (const Error& error) {
      throw std::invalid_argument(
          "--serve is " + std::to_string(options.port) + "; permitted: a port that can be had (" + error.what() + ")");
    }
    if (!request_.quiet || request_.serve_port == 0) {  // nobody else can tell a port that was free
      progress_.say("the live page is at " + server_->url());
    }
  }

  TrainRequest& request_;
  train::Trainer& trainer_;
  const std::int64_t global_batch_;
  const bool in_rounds_;
  ProgressLine progress_;
  std::unique_ptr<serve::RunServer> server_;
  std::unique_ptr<cli::Recorder> trace_;
  std::optional<LiveLog> log_;
  std::int64_t known_ = 0;  // lines of the history
};

/// One worker's run of `isochron train`.
class Run {
 public:
  Run(TrainRequest& request, train::Options options)
      : request_(request),
        options_(with_hooks(std::move(options))),
        trainer_(options_, complain_line),
        results_{.policy = options_.job.policy, .target_accuracy = request.target_accuracy} {
    begin_reporting();
  }

  /// Returns the signal that ended it; 0: none.
  int train() {
    Job& job = trainer_.job();
    if (reporter_ && trainer_.steps_done() > 0) {
      reporter_->say("resumed at step " + std::to_string(trainer_.steps_done()));
    }
    while (!results_.seconds_to_accuracy() && trainer_.step()) {
      note_step();
      if (evaluation_is_due()) {
        evaluate();
      }
    }
    if (results_.seconds_to_accuracy()) {
      trainer_.save();
    }
    const bool logged = log_is_whole();
    finish();
    if (!logged) {
      if (trainer_.job().is_first()) {
        complain_line(
            "the run ends after " + std::to_string(trainer_.steps_done()) + " steps, since --log-errors is 'stop'");
      }
      throw CLI::RuntimeError(EXIT_FAILURE);
    }
    return job.stop_signal();
  }

 private:
  train::Options with_hooks(train::Options options) {
    options.job.handle_signals = true;
    options.job.warn = complain_line;
    const auto note = [this](const auto& record) {
      history_.add(record);
      if (reporter_) {  // before a checkpoint that holds the step
        reporter_->write(history_);
      }
    };
    options.job.on_step = note;
    options.job.on_update = [this, note](const UpdateRecord& record) {
      results_.meter.add(record);  // anybody's; trainer_ knows of this worker's own
      note(record);
    };
    options.job.on_event = [this](const EventRecord& record) {
      results_.meter.add(record);
      history_.add(record);
    };
    if (const char* const folder = std::getenv(io::kJobFolderVariable)) {
      options.job.join_requests = [path = std::string(folder)] { return next_request(path); };
    }
    return options;
  }

  static std::optional<JoinRequest> next_request(const std::string& folder) {
    try {
      if (const auto request = io::take_join_request(folder)) {
        return JoinRequest{
            .command = request->command, .host = request->host, .gone = [folder, worker = request->worker] {
              return worker >= 0 && (emulate::WorkerNotes(folder, static_cast<std::size_t>(worker)).status() ||
                                     io::is_asked_for(folder, worker));
            }};
      }
    } catch (const Error& error) {
      complain_line(error.what());
    }
    return std::nullopt;
  }

  /// If the first worker cannot write what it should, all end: it says why.
  void begin_reporting() {
    std::optional<std::invalid_argument> refusal;
    if (trainer_.job().is_first()) {
      try {
        reporter_ = std::make_unique<Reporter>(request_, options_, trainer_, LiveLog::Begin::kRun);
      } catch (const std::invalid_argument& error) {
        refusal = error;
      }
    }
    const bool refused = trainer_.job().sum({refusal ? 1.0 : 0.0}).front() > 0.0;
    if (refusal) {
      throw std::invalid_argument(*refusal);
    }
    if (refused) {
      throw CLI::RuntimeError(cli::kBadUsage);
    }
  }

  /// The reporter of the first worker, which another one becomes when that is lost; null elsewhere.
  Reporter* reporter() {
    if (trainer_.job().is_first() && !reporter_ && !reporting_failed_) {
      try {
        reporter_ = std::make_unique<Reporter>(request_, options_, trainer_, LiveLog::Begin::kTakeOver);
      } catch (const std::invalid_argument& error) {
        reporting_failed_ = true;
        complain_line(std::string(error.what()) + (must_log() ? "" : "; the run goes on without"));
        if (must_log()) {
          trainer_.job().stop();  // on all, after the next step
        }
      }
    }
    return reporter_.get();
  }

  void note_step() {
    if (in_step(options_.job.sync)) {
      results_.meter.add(trainer_.job().last_step());
      results_.loss = trainer_.job().last_step().loss;
    } else {
      results_.loss = trainer_.job().last_update().loss;
    }
    results_.pushes = trainer_.job().push_counts();
    results_.batch_sizes = trainer_.job().batch_sizes();
    write();
  }

  void write() {
    if (Reporter* const first = reporter()) {
      first->write(history_);
      if (must_log() && !first->log_trouble().empty()) {
        trainer_.job().stop();  // on all, after the next step
      }
    }
  }

  [[nodiscard]] bool must_log() const { return !request_.log.empty() && request_.log_errors == "stop"; }

  /// False on all workers, if all must stop for it.
  bool log_is_whole() {
    if (!must_log()) {
      return true;
    }
    while (true) {
      try {
        const bool failed = reporting_failed_ || (reporter_ && !reporter_->log_trouble().empty());
        return trainer_.job().sum({failed ? 1.0 : 0.0}).front() == 0.0;
      } catch (const Interrupted&) {
        continue;  // somebody's part is lost
      }
    }
  }

  bool evaluation_is_due() {
    if (request_.evaluate_every == 0 || trainer_.job().stopping() || !trainer_.all_together()) {
      return false;
    }
    const std::int64_t done = trainer_.steps_done();
    return done % (request_.evaluate_every * trainer_.steps_per_epoch()) == 0 || done == trainer_.total_steps();
  }

  void evaluate() {
    const train::Evaluation evaluation = trainer_.evaluate();
    const std::int64_t done = trainer_.steps_done();
    results_.evaluations.push_back({.step = done, .seconds = results_.meter.seconds(), .evaluation = evaluation});
    history_.add(EvaluationRecord{
        .step = trainer_.job().next_record(),
        .seconds = last_end(),
        .loss = evaluation.loss,
        .accuracy = evaluation.accuracy});
    write();
    if (reporter_) {
      reporter_->say(
          "step " + std::to_string(done) + ": test accuracy " + fixed(evaluation.accuracy, 4) + ", test loss " +
          fixed(evaluation.loss, 4) + ", " + fixed(results_.meter.seconds(), 1) + " s of training");
    }
  }

  /// When this worker's last step or iteration ended, in seconds since the start of the run.
  double last_end() {
    if (in_step(options_.job.sync)) {
      const StepRecord& last = trainer_.job().last_step();
      return last.start_seconds + last.seconds;
    }
    const UpdateRecord& last = trainer_.job().last_update();
    return last.worker.start_seconds + last.seconds;
  }

  void finish() {
    Job& job = trainer_.job();
    if (Reporter* const first = reporter()) {
      first->write(history_);
      if (const int signal = job.stop_signal()) {
        const std::string where = options_.checkpoints.empty() ? "" : ", saved in " + options_.checkpoints.string();
        first->say(
            "stopped by signal " + std::to_string(signal) + " after " + std::to_string(trainer_.steps_done()) +
            " steps" + where);
      }
      first->finish(results_, details());
    }
  }

  nlohmann::ordered_json details() {
    return {
        {"model", options_.model},
        {"dataset", options_.dataset},
        {"workers", trainer_.job().size()},
        {"global_batch", options_.job.global_batch},
        {"sync", to_string(options_.job.sync)},
        {"step", trainer_.steps_done()},
        {"seed", options_.job.seed}};
  }

  TrainRequest& request_;
  History history_;
  const train::Options options_;
  train::Trainer trainer_;
  TrainResults results_;
  std::unique_ptr<Reporter> reporter_;
  bool reporting_failed_ = false;
};

void run_train(TrainRequest& request, CLI::App& command) {
  cli::apply_config(command, request.config);
  request.check();
  io::note_worker_phase(io::WorkerPhase::kStarting);
  if (const int signal = Run(request, request.training.checked(command)).train()) {
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
      "  isochron launch --cluster hl8 -- train --sync local --round-steps 20   # for slow networks\n"
      "  mpirun -n 4 isochron train --config mine.toml --checkpoints saved --resume auto");
  command->final_callback([request, command] { run_train(*request, *command); });
}

}  // namespace isochron::worker
