#include "isochron/train/options.h"

#include <limits>
#include <string_view>
#include <utility>

#include "isochron/core/deal/cost.h"
#include "isochron/core/error.h"
#include "isochron/data/catalog.h"
#include "isochron/model/model.h"
#include "isochron/train/device.h"
#include "isochron/train/optimizer.h"

namespace isochron::train {
namespace {

constexpr double kOpen = std::numeric_limits<double>::infinity();

std::string listed(std::span<const std::string_view> names) {
  return joined({names.begin(), names.end()}, ", ");
}

Option folder_option(std::string_view name, std::filesystem::path& value, std::string_view meaning) {
  std::string text = value.string();
  Option option = text_option(name, text, "FOLDER", meaning);
  option.get = [&value] { return value.string(); };
  option.set = [&value](std::string_view path) {
    value = path;
    return true;
  };
  return option;
}

void add(std::vector<Option>& options, const char* group, std::vector<Option> more) {
  for (Option& option : more) {
    option.group = group;
    options.push_back(std::move(option));
  }
}

void check_documents(const Options& options) {
  if (options.cost != "count") {
    const bool known = options.cost == "linear" || options.cost.starts_with("attention");
    require(known, "cost", in_quotes(options.cost), "count, linear, attention, attention:width=WIDTH");
    (void)parse_length_cost("cost", options.cost);
  }
  if (options.lengths == SampleLengths::kFixed) {
    require(options.cost == "linear", "cost", in_quotes(options.cost), "with lengths documents");
    return;
  }
  if (options.job.sync != Sync::kBsp) {
    refuse("lengths", "'documents' with sync " + std::string(name_of(kSyncNames, options.job.sync)), "with sync bsp");
  }
  if (options.job.micro_batch > 0 && options.collate == Collation::kPacked) {
    refuse("micro_batch", options.job.micro_batch, "0 with packed documents, or with collate padded");
  }
}

void check_checkpoints(const Options& options) {
  if (options.checkpoints.empty() && options.checkpoint_every > 0) {
    refuse("checkpoint_every", options.checkpoint_every, "with checkpoints, their folder");
  }
  if (options.checkpoints.empty() && options.resume == "auto") {
    refuse("resume", "auto", "with checkpoints, their folder");
  }
}

}  // namespace

std::vector<Option> run_options(Options& run) {
  std::vector<Option> options;
  add(options,
      "What to train",
      {text_option("model", run.model, "NAME[:key=value,…]", "One of " + listed(model::model_names())),
       text_option("dataset", run.dataset, "NAME", "One of " + listed(data::dataset_names())),
       folder_option("data", run.data, "Where 'make data' has put the datasets"),
       integer_option("context", run.context, 1, 1 << 20, "Tokens of a sample, for datasets of tokens"),
       choice_option(
           "lengths",
           run.lengths,
           kSampleLengthsNames,
           "Samples of tokens are as long as the context, or as the text's documents"),
       text_option(
           "cost",
           run.cost,
           "count|linear|attention|attention:width=WIDTH",
           "What a document costs, by which steps are dealt; count: all alike"),
       choice_option("collate", run.collate, kCollationNames, "Documents one behind the other, or filled up"),
       flag_option("augment", run.augment, "Train on images flipped and cropped, not as they are"),
       integer_option("train_samples", run.train_samples, 0, kMostCount, "Use only the first N; 0: all"),
       integer_option("test_samples", run.test_samples, 0, kMostCount, "The same for evaluation"),
       integer_option("epochs", run.epochs, 1, kMostCount, "The run ends after so many"),
       integer_option("steps", run.steps, 0, kMostCount, "Or after so many steps; 0: no limit")});
  add(options,
      "How it learns",
      {text_option("optimizer", run.optimizer, "NAME[:key=value,…]", "One of sgd, adam, adamw"),
       number_option("learning_rate", run.learning_rate, 0.0, kOpen, "Its learning rate, before schedule and rule"),
       number_option("momentum", run.momentum, 0.0, kOpen, "The momentum of sgd"),
       number_option("weight_decay", run.weight_decay, 0.0, kOpen, "Pulls parameters towards 0"),
       choice_option("schedule", run.schedule, kDecayNames, "How the learning rate changes over the run"),
       number_option("step_factor", run.step_factor, 0.0, kOpen, "Schedule step: the rate is multiplied by this"),
       integer_option(
           "step_every", run.step_every, 0, kMostCount, "Schedule step: after so many steps; 0: a third of the run")});
  add(options,
      "This worker",
      {text_option("device", run.device, "cpu|cuda|cuda:N|auto", "Where it computes"),
       integer_option("threads", run.threads, 0, 1024, "LibTorch's; 0: as it likes")});
  add(options,
      "When something fails",
      {size_option(
          "memory_limit",
          run.memory_limit,
          0,
          std::numeric_limits<std::int64_t>::max(),
          "Memory it may take; above it takes smaller batches; 0: no limit")});
  add(options,
      "Checkpoints",
      {folder_option("checkpoints", run.checkpoints, "Save them here"),
       integer_option("checkpoint_every", run.checkpoint_every, 0, kMostCount, "Steps; 0: at the end of every epoch"),
       integer_option("keep", run.keep, 1, kMostCount, "The newest so many"),
       text_option("resume", run.resume, "auto|FILE", "From this one; auto: the newest of the folder, if any")});
  return options;
}

void Options::validate() const {
  isochron::validate(job);
  Options copy = *this;
  for (const Option& option : run_options(copy)) {
    require(option.set(option.get()), option.name, std::string_view(option.get()), option.permitted);
  }
  data::check_dataset_name(dataset);
  check_documents(*this);
  require(learning_rate > 0.0, "learning_rate", learning_rate, "above 0");
  require(momentum < 1.0, "momentum", momentum, "0 or more, below 1");
  check_optimizer(*this);
  if (job.async.momentum_correction && !optimizer.starts_with("sgd")) {
    refuse("momentum_correction", "true with optimizer " + in_quotes(optimizer), "with optimizer 'sgd'");
  }
  decay(1).validate();
  (void)choose_device(device);
  check_checkpoints(*this);
}

DecayOptions Options::decay(std::int64_t total_steps) const {
  return {
      .decay = schedule,
      .total_steps = total_steps,
      .warmup_steps = warmup,
      .step_factor = step_factor,
      .step_every = step_every};
}

}  // namespace isochron::train
