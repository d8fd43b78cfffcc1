#include "isochron/worker/training_words.h"

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "isochron/cli/options.h"
#include "isochron/data/catalog.h"
#include "isochron/io/units.h"
#include "isochron/io/worker_variables.h"
#include "isochron/model/model.h"

namespace isochron::worker {
namespace {

using cli::add_choice;
using cli::add_number;
using cli::add_value;
using cli::add_whole;

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text.append(text.empty() ? "" : ", ").append(name);
  }
  return text;
}

CLI::Option* add_text(
    CLI::App& command, const std::string& name, std::string& value, const std::string& type, const std::string& help) {
  return command.add_option(name, value, help)->type_name(type)->capture_default_str();
}

CLI::Option* add_folder(
    CLI::App& command, const std::string& name, std::filesystem::path& value, const std::string& help) {
  const auto set = [&value](const std::string& text) { value = text; };
  return add_value(command, name, "FOLDER", help, set)->default_str(value.string());
}

void add_run_group(CLI::App& command, TrainingWords& words) {
  train::Options& options = words.options;
  const std::string group = "What to train";
  add_text(command, "--model", options.model, "NAME[:key=value,…]", "One of " + joined(model::model_names()))
      ->group(group);
  add_text(command, "--dataset", options.dataset, "NAME", "One of " + joined(data::dataset_names()))->group(group);
  add_folder(command, "--data", options.data, "Where 'make data' has put the datasets")->group(group);
  add_whole(command, "--context", options.context, 1, 1 << 20, "Tokens of a sample, for datasets of tokens")
      ->group(group);
  command.add_flag("--no-augment", words.no_augment, "Train on images as they are, not flipped and cropped")
      ->group(group);
  add_whole(command, "--train-samples", options.train_samples, 0, cli::kMostCount, "Use only the first N; 0: all")
      ->group(group);
  add_whole(command, "--test-samples", options.test_samples, 0, cli::kMostCount, "The same for evaluation")
      ->group(group);
  add_whole(command, "--epochs", options.epochs, 1, cli::kMostCount, "The run ends after so many")->group(group);
  add_whole(command, "--steps", options.steps, 0, cli::kMostCount, "Or after so many steps; 0: no limit")->group(group);
  add_whole(command, "--seed", words.seed, 0, std::numeric_limits<std::int64_t>::max(), "Of parameters and order")
      ->group(group);
}

void add_split_group(CLI::App& command, TrainingWords& words) {
  JobOptions& job = words.options.job;
  const std::string group = "How the batch is split";
  add_whole(command, "--global-batch", job.global_batch, 1, cli::kMostCount, "Samples per step, all workers together")
      ->group(group);
  add_text(command, "--policy", job.policy, "NAME[:key=value,…]", "See 'isochron policies'")->group(group);
  add_choice(
      command,
      "--weighting",
      words.weighting,
      {"exact", "mean"},
      "Of gradients: exact is one big batch's, mean for comparison")
      ->group(group);
  add_choice(command, "--last-batch", words.last_batch, {"keep", "drop"}, "The samples that do not fill a step")
      ->group(group);
  command.add_flag("--no-sync-batch-norm", words.no_sync_batch_norm, "BatchNorm over each worker's samples alone")
      ->group(group);
}

void add_sync_group(CLI::App& command, TrainingWords& words) {
  AsyncOptions& async = words.options.job.async;
  const std::string group = "How workers keep in step";
  add_choice(
      command,
      "--sync",
      words.sync,
      {"bsp", "asp", "ssp"},
      "All together, each on its own, or on its own within a bound")
      ->group(group);
  add_whole(command, "--staleness", words.staleness, 0, cli::kMostCount, "ssp: iterations ahead of the slowest at most")
      ->default_str(std::to_string(async.staleness))
      ->group(group);
  add_whole(
      command,
      "--servers",
      async.servers,
      0,
      cli::kMostCount,
      "asp, ssp: the last N ranks serve parameters only; 0: all do")
      ->group(group);
  add_choice(
      command,
      "--push-rate",
      words.push_rate,
      {"none", "batch-linear", "batch-sqrt", "staleness", "batch-linear+staleness", "batch-sqrt+staleness"},
      "asp, ssp: what an update's learning rate follows")
      ->group(group);
  command
      .add_flag(
          "--momentum-correction", async.momentum_correction, "asp, ssp: less momentum, since asynchrony adds some")
      ->group(group);
}

// What is said of asynchronous training must not be said in vain.
void check_sync(const CLI::App& command, const TrainingWords& words) {
  for (const char* const option : {"--staleness", "--servers", "--push-rate", "--momentum-correction"}) {
    const bool for_ssp = std::string_view(option) == "--staleness";
    if (command.count(option) > 0 && (words.sync == "bsp" || (for_ssp && words.sync == "asp"))) {
      throw std::invalid_argument(
          std::string(option) + " is given with --sync " + words.sync + "; permitted: with --sync " +
          (for_ssp ? "ssp" : "asp or ssp"));
    }
  }
  if (const std::string& optimizer = words.options.optimizer;
      words.options.job.async.momentum_correction && !optimizer.starts_with("sgd")) {
    throw std::invalid_argument(
        "--momentum-correction is given with --optimizer " + optimizer + "; permitted: with --optimizer sgd");
  }
}

Sync parse_sync(const std::string& name) {
  return name == "asp" ? Sync::kAsp : name == "ssp" ? Sync::kSsp : Sync::kBsp;
}

void add_learning_group(CLI::App& command, TrainingWords& words) {
  train::Options& options = words.options;
  const std::string group = "How it learns";
  add_text(command, "--optimizer", options.optimizer, "NAME[:key=value,…]", "One of sgd, adam, adamw")->group(group);
  add_number(command, "--learning-rate", options.learning_rate, "Its learning rate, before schedule and rule")
      ->group(group);
  add_number(command, "--momentum", options.momentum, "Of sgd")->group(group);
  add_number(command, "--weight-decay", options.weight_decay, "Pulls parameters towards 0")->group(group);
  add_choice(command, "--schedule", options.schedule, {"constant", "step", "cosine"}, "Of the learning rate")
      ->group(group);
  add_whole(command, "--warmup", options.warmup, 0, cli::kMostCount, "Steps in which the rate rises to its value")
      ->group(group);
  add_number(command, "--step-factor", options.step_factor, "Schedule step: the rate is multiplied by this")
      ->group(group);
  add_whole(
      command,
      "--step-every",
      options.step_every,
      0,
      cli::kMostCount,
      "Schedule step: after so many steps; 0: a third of the run")
      ->group(group);
  add_choice(
      command,
      "--lr-rule",
      words.rate_rule,
      {"none", "linear", "sqrt", "legw", "adascale"},
      "How the learning rate follows the global batch")
      ->group(group);
  add_whole(
      command,
      "--reference-batch",
      options.job.rate.reference_batch,
      0,
      cli::kMostCount,
      "The batch that the rate was tuned for; 0: the global batch")
      ->group(group);
}

void add_worker_group(CLI::App& command, TrainingWords& words) {
  train::Options& options = words.options;
  JobOptions& job = options.job;
  const std::string group = "This worker";
  add_text(command, "--device", options.device, "cpu|cuda|cuda:N|auto", "Where it computes")->group(group);
  add_whole(command, "--threads", options.threads, 0, 1024, "LibTorch's; 0: as it likes")->group(group);
  add_text(command, "--kind", job.kind, "NAME", "Workers of one kind share the shape of their time curve")
      ->group(group);
  add_number(command, "--weight", job.weight, "Nominal speed against the others; 0: unknown")->group(group);
  command.add_flag("--nominal-weight", words.nominal_weight, "The weight is the cores that the launcher gave it")
      ->group(group);
  add_whole(command, "--min-batch", job.min_batch, 0, cli::kMostCount, "Samples it takes at least")->group(group);
  add_whole(command, "--max-batch", words.max_batch, 0, cli::kMostCount, "Samples it takes at most; 0: no limit")
      ->group(group);
  add_whole(command, "--granularity", job.granularity, 1, cli::kMostCount, "It takes multiples of this")->group(group);
  add_whole(command, "--micro-batch", job.micro_batch, 0, cli::kMostCount, "Samples it computes at a time; 0: all")
      ->group(group);
  add_whole(command, "--prefetch-threads", job.prefetch.threads, 0, 256, "Threads that prepare samples")->group(group);
}

void add_exchange_group(CLI::App& command, TrainingWords& words) {
  const std::string group = "Exchange of gradients";
  const auto set_size = [&words](const std::string& text) { words.bucket_bytes = io::parse_size(text); };
  add_value(command, "--bucket-bytes", "SIZE", "Gradients that travel together", set_size)
      ->default_str(std::to_string(words.options.job.gradients.bucket_bytes))
      ->group(group);
  add_choice(command, "--compression", words.compression, {"none", "bf16"}, "What they travel as")->group(group);
}

void add_failure_group(CLI::App& command, TrainingWords& words) {
  const std::string group = "When something fails";
  add_number(
      command, "--timeout", words.timeout_seconds, "Seconds that a worker may keep the others waiting until it is out")
      ->group(group);
  add_text(command, "--fence", words.fence, "COMMAND", "Kills process {pid} on {host}, where this host cannot itself")
      ->group(group);
  add_choice(
      command,
      "--numbers",
      words.numbers,
      {"stop", "skip", "rollback", "ignore"},
      "When a gradient is not finite: end, leave the step out, go back to a checkpoint")
      ->group(group);
  const auto set_limit = [&words](const std::string& text) { words.memory_limit = io::parse_size(text); };
  add_value(command, "--memory-limit", "SIZE", "Memory it may take; above it takes smaller batches", set_limit)
      ->default_str("none")
      ->group(group);
}

void add_checkpoint_group(CLI::App& command, TrainingWords& words) {
  train::Options& options = words.options;
  const std::string group = "Checkpoints";
  add_folder(command, "--checkpoints", options.checkpoints, "Save them here")->group(group);
  add_whole(
      command,
      "--checkpoint-every",
      options.checkpoint_every,
      0,
      cli::kMostCount,
      "Steps; 0: at the end of every epoch")
      ->group(group);
  add_whole(command, "--keep", options.keep, 1, cli::kMostCount, "The newest so many")->group(group);
  add_text(command, "--resume", options.resume, "auto|FILE", "From this one; auto: the newest of the folder, if any")
      ->group(group);
}

Numbers parse_numbers(const std::string& name) {
  return name == "skip"       ? Numbers::kSkip
         : name == "rollback" ? Numbers::kRollBack
         : name == "ignore"   ? Numbers::kIgnore
                              : Numbers::kStop;
}

bool run_fence(std::string command, const Peer& peer) {
  const std::pair<std::string, std::string> values[] = {{"{host}", peer.host}, {"{pid}", std::to_string(peer.process)}};
  for (const auto& [name, value] : values) {
    for (std::size_t at = command.find(name); at != std::string::npos; at = command.find(name, at + value.size())) {
      command.replace(at, name.size(), value);
    }
  }
  return std::system(command.c_str()) == 0;  // NOLINT(bugprone-command-processor): the user's own words
}

/// Sets `value` to what the launcher says, unless the command line does.
void inherit(const CLI::App& command, const std::string& option, const char* variable, std::int64_t& value) {
  if (command.count(option) == 0) {
    value = io::whole_variable(variable, 0, cli::kMostCount).value_or(value);
  }
}

void inherit_from_launcher(const CLI::App& command, JobOptions& job, bool nominal_weight) {
  inherit(command, "--min-batch", io::kMinBatchVariable, job.min_batch);
  inherit(command, "--max-batch", io::kMaxBatchVariable, job.max_batch);
  inherit(command, "--granularity", io::kGranularityVariable, job.granularity);
  if (const char* const name = std::getenv(io::kWorkerNameVariable)) {
    job.name = name;
  }
  if (const char* const kind = std::getenv(io::kWorkerKindVariable); kind != nullptr && command.count("--kind") == 0) {
    job.kind = kind;
  }
  if (nominal_weight) {
    job.weight = io::positive_variable(io::kWorkerCoresVariable).value_or(job.weight);
  }
}

}  // namespace

void TrainingWords::add_options(CLI::App& command) {
  options.job.global_batch = 128;
  add_run_group(command, *this);
  add_split_group(command, *this);
  add_sync_group(command, *this);
  add_learning_group(command, *this);
  add_worker_group(command, *this);
  add_exchange_group(command, *this);
  add_failure_group(command, *this);
  add_checkpoint_group(command, *this);
}

train::Options TrainingWords::checked(const CLI::App& command) const {
  train::Options checked = options;
  checked.augment = !no_augment;
  JobOptions& job = checked.job;
  job.seed = static_cast<std::uint64_t>(seed);
  job.last_batch = last_batch == "keep" ? LastBatch::kKeep : LastBatch::kDrop;
  job.weighting = weighting == "exact" ? Weighting::kExact : Weighting::kMean;
  job.sync_batch_norm = !no_sync_batch_norm;
  job.max_batch = max_batch > 0 ? max_batch : kNoLimit;
  job.gradients.compression = compression == "bf16" ? Compression::kBf16 : Compression::kNone;
  if (bucket_bytes > 0.0) {
    job.gradients.bucket_bytes = static_cast<std::int64_t>(std::min(bucket_bytes, 1e18));
  }
  job.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout_seconds, 1e9) * 1000.0));
  job.numbers = parse_numbers(numbers);
  check_sync(command, *this);
  job.sync = parse_sync(sync);
  job.async.staleness = staleness >= 0 ? staleness : job.async.staleness;
  job.async.rate = parse_push_rate(push_rate);
  if (!fence.empty()) {
    job.fence = [command = fence](const Peer& peer) { return run_fence(command, peer); };
  }
  checked.memory_limit = static_cast<std::int64_t>(std::min(memory_limit, 1e18));
  job.rate.rule = parse_rate_rule(rate_rule);
  if (job.rate.rule != RateRule::kNone) {  // the rule knows how long a warm-up is at this batch
    job.rate.warmup_steps = static_cast<double>(checked.warmup);
    checked.warmup = 0;
  }
  inherit_from_launcher(command, job, nominal_weight);
  checked.validate();
  return checked;
}

}  // namespace isochron::worker
