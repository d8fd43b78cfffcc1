#include "isochron/core/job_settings.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/policy/registry.h"

namespace isochron {
namespace {

constexpr std::int64_t kLeastBucket = std::int64_t{1} << 10U;
constexpr std::int64_t kMostBucket = std::int64_t{1} << 30U;
constexpr std::int64_t kMostRound = 1'000'000;
constexpr std::int64_t kMostLocalBatch = std::int64_t{1} << 20U;  // in units it must be a whole number below 2^31
constexpr double kOpen = std::numeric_limits<double>::infinity();

constexpr unsigned kPython = kTorch | kTensorFlow;
constexpr unsigned kShared = kEverywhere | kAgreed;

class Table {
 public:
  void begin(std::string_view group) { group_ = group; }

  JobOption& add(Option option, unsigned traits) {
    option.group = group_;
    return rows_.emplace_back(JobOption{{std::move(option)}, traits});
  }

  std::vector<JobOption> take() { return std::move(rows_); }

 private:
  std::string group_;
  std::vector<JobOption> rows_;
};

/// A count of which 0 means none: kNoLimit in the variable.
Option limit_option(std::string_view name, std::int64_t& value, std::string_view meaning) {
  Option option = integer_option(name, value, 0, kMostCount, meaning);
  option.get = [&value] { return std::to_string(value == kNoLimit ? 0 : value); };
  option.set = [&value, set = option.set](std::string_view text) {
    const bool permitted = set(text);
    value = permitted && value == 0 ? kNoLimit : value;
    return permitted;
  };
  option.standard = option.get();
  return option;
}

/// A whole number in a variable that could hold more.
Option whole_option(std::string_view name, double& value, std::string_view meaning) {
  Option option = number_option(name, value, 0.0, static_cast<double>(kMostCount), meaning);
  option.type = Option::Type::kInteger;
  option.permitted = "a whole number from 0 to " + std::to_string(kMostCount);
  option.set = [set = option.set](std::string_view text) {
    const bool whole = text.find_first_not_of("0123456789") == std::string_view::npos;
    return whole && set(text);
  };
  return option;
}

void add_split(Table& table, JobSettings& settings) {
  table.begin("How the batch is split");
  table.add(
      integer_option("global_batch", settings.global_batch, 1, kMostCount, "Samples per step, all workers together"),
      kShared | kCheckpointed);
  table.add(
      text_option("policy", settings.policy, "NAME[:key=value,…]", "What splits it; see 'isochron policies'"),
      kShared | kCheckpointed);
  table.add(
      text_option(
          "start_from",
          settings.start_from,
          "FILE",
          "The log of an earlier run of these workers, whose speeds the first split follows; empty: equal shares"),
      kShared);
  table.add(
      choice_option(
          "weighting",
          settings.weighting,
          kWeightingNames,
          "Gradients; exact: those of one big batch; mean: the plain average, for comparison"),
      kShared);
  table.add(
      choice_option(
          "last_batch", settings.last_batch, kLastBatchNames, "The samples that do not fill a step: taken or left out"),
      kShared | kCheckpointed);
  table.add(
      integer_option("seed", settings.seed, "Sets parameters and the order of the samples"), kShared | kCheckpointed);
  table.add(
      flag_option(
          "sync_batch_norm", settings.sync_batch_norm, "BatchNorm over the global batch, not each worker's samples"),
      kShared);
  table.add(
      choice_option(
          "precision", settings.precision, kPrecisionNames, "What forward and backward compute in: bf16 by autocast"),
      kCommandLine | kAgreed);
}

void add_sync(Table& table, JobSettings& settings) {
  AsyncOptions& async = settings.async;
  table.begin("How workers keep in step");
  table
      .add(
          choice_option(
              "sync",
              settings.sync,
              kSyncNames,
              "How workers keep in step; bsp: every step; local: once a round; asp: not at all; ssp: within a bound"),
          kShared)
      .takers = {{"local", kCommandLine | kTorch}};
  table.add(
      integer_option("staleness", async.staleness, 0, kMostCount, "ssp: iterations ahead of the slowest at most"),
      kShared | kSspOnly);
  table.add(
      integer_option(
          "servers", async.servers, 0, kMostCount, "asp, ssp: the last N ranks serve parameters only; 0: all do"),
      kCommandLine | kAgreed | kAsyncOnly);
  table.add(
      choice_option("push_rate", async.rate, kPushRateNames, "asp, ssp: what an update's learning rate follows"),
      kShared | kAsyncOnly);
  table.add(
      flag_option(
          "momentum_correction", async.momentum_correction, "asp, ssp: less momentum, since asynchrony adds some"),
      kShared | kAsyncOnly);
  table.add(
      choice_option(
          "transport",
          settings.transport,
          {"tensorflow", "sockets"},
          "asp, ssp: over TensorFlow's own servers, or over sockets of our own, which are faster"),
      kTensorFlow | kAgreed | kAsyncOnly);
}

void add_rounds(Table& table, JobSettings& settings) {
  RoundOptions& rounds = settings.rounds;
  constexpr unsigned kTraits = kCommandLine | kTorch | kAgreed | kLocalOnly;
  table.add(
      integer_option("round_steps", rounds.steps, 0, kMostRound, "local: steps between two exchanges; 0: chosen"),
      kTraits);
  table.add(
      number_option(
          "network_share",
          rounds.network_share,
          0.001,
          0.9,
          "local: share of the time for exchanges, if steps are chosen"),
      kTraits);
  table.add(
      choice_option("outer", rounds.outer, kOuterNames, "local: how the averaged change of a round is applied"),
      kTraits);
  table.add(
      number_option(
          "outer_lr", rounds.rate, 0.0, kOpen, "local: learning rate of outer; 0: 1 with average, 0.7 with nesterov"),
      kTraits);
  table.add(
      number_option("outer_momentum", rounds.momentum, 0.0, 0.9999, "local: momentum of outer, with nesterov"),
      kTraits);
}

void add_rate(Table& table, JobSettings& settings) {
  table.begin("How it learns");
  JobOption& lr_rule = table.add(
      choice_option("lr_rule", settings.rate.rule, kRateRuleNames, "How the learning rate follows the global batch"),
      kShared);
  lr_rule.aliases = {"rate"};
  lr_rule.takers = {{"adascale", kCommandLine}};
  table.add(
      integer_option(
          "reference_batch",
          settings.rate.reference_batch,
          0,
          kMostCount,
          "The batch that the rate was tuned for; 0: the global batch"),
      kShared);
  table
      .add(
          whole_option("warmup_steps", settings.rate.warmup_steps, "Steps in which the rate rises to its value"),
          kShared)
      .aliases = {"warmup"};
}

void add_worker(Table& table, JobSettings& settings) {
  table.begin("This worker");
  table.add(
      text_option("name", settings.name, "NAME", "Its name, for people; empty: HOST-K, its host and its place there"),
      kPython);
  table.add(
      text_option(
          "kind",
          settings.kind,
          "NAME",
          "Workers of one kind share the shape of their time curve; empty: the device's"),
      kEverywhere);
  table.add(
      number_option("weight", settings.weight, 0.0, kOpen, "Nominal speed against the others; 0: unknown"),
      kEverywhere);
  table.add(integer_option("min_batch", settings.min_batch, 0, kMostCount, "Samples it takes at least"), kEverywhere);
  table.add(limit_option("max_batch", settings.max_batch, "Samples it takes at most; 0: no limit"), kEverywhere);
  table.add(
      integer_option("granularity", settings.granularity, 1, kMostCount, "It takes multiples of this"), kEverywhere);
  table.add(
      integer_option("micro_batch", settings.micro_batch, 0, kMostCount, "Samples it computes at a time; 0: all"),
      kCommandLine | kTorch);
  table.add(
      integer_option("prefetch_threads", settings.prefetch_threads, 0, 256, "Threads that prepare samples"),
      kCommandLine);
}

void add_exchange(Table& table, JobSettings& settings) {
  table.begin("Exchange of gradients");
  table.add(
      size_option(
          "bucket_bytes", settings.gradients.bucket_bytes, kLeastBucket, kMostBucket, "Gradients that travel together"),
      kCommandLine | kAgreed);
  table.add(
      choice_option("compression", settings.gradients.compression, kCompressionNames, "How gradients are sent"),
      kCommandLine | kTorch | kAgreed);
}

void add_failures(Table& table, JobSettings& settings) {
  table.begin("When something fails");
  table.add(
      number_option(
          "timeout",
          settings.timeout,
          0.001,
          kOpen,
          "Seconds that a worker may keep the others waiting before it is removed"),
      kEverywhere);
  JobOption& on_nonfinite = table.add(
      choice_option(
          "on_nonfinite",
          settings.on_nonfinite,
          kOnNonFiniteNames,
          "When a gradient is not finite; stop: end; skip: leave the step out; rollback: back to a checkpoint"),
      kShared);
  on_nonfinite.aliases = {"numbers"};
  on_nonfinite.takers = {{"rollback", kCommandLine}};
  table.add(
      choice_option(
          "on_bad_sample",
          settings.on_bad_sample,
          {"stop", "skip"},
          "When the dataset fails at a sample: end everywhere, or go on without it"),
      kTorch | kAgreed);
  table.add(
      flag_option("handle_signals", settings.handle_signals, "SIGTERM and SIGINT end the loops of all at one step"),
      kTorch);
}

/// The value as messages show it.
std::string shown(const Option& option) {
  const bool text = option.type == Option::Type::kChoice || option.type == Option::Type::kText;
  return text ? in_quotes(option.get()) : option.get();
}

[[noreturn]] void refuse_with_sync(const Option& option, Sync sync, std::string_view permitted) {
  refuse(option.name, shown(option) + " with sync " + in_quotes(to_string(sync)), permitted);
}

// Every value by itself, and that nothing is said in vain.
void validate_rows(const JobSettings& settings) {
  JobSettings copy = settings;
  JobSettings untouched;
  const std::vector<JobOption> standards = job_options(untouched);
  const std::vector<JobOption> options = job_options(copy);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const JobOption& option = options[i];
    require(option.set(option.get()), option.name, std::string_view(shown(option)), option.permitted);
    if (option.standard == standards[i].standard) {
      continue;
    }
    if (option.is(kSspOnly) && settings.sync != Sync::kSsp) {
      refuse_with_sync(option, settings.sync, "with sync 'ssp'");
    }
    if (option.is(kAsyncOnly) && in_step(settings.sync)) {
      refuse_with_sync(option, settings.sync, "with sync 'asp' or 'ssp'");
    }
    if (option.is(kLocalOnly) && settings.sync != Sync::kLocal) {
      refuse_with_sync(option, settings.sync, "with sync 'local'");
    }
  }
}

void require_bsp(bool holds, std::string_view name, std::string_view value, Sync sync) {
  if (!holds) {
    refuse(name, in_quotes(value) + " with sync " + in_quotes(to_string(sync)), "with sync 'bsp'");
  }
}

void require_full_precision(const JobSettings& settings) {
  const Precision precision = settings.precision;
  require_bsp(precision == Precision::kFloat32, "precision", name_of(kPrecisionNames, precision), settings.sync);
  const Compression compression = settings.gradients.compression;
  require_bsp(compression == Compression::kNone, "compression", name_of(kCompressionNames, compression), settings.sync);
}

// What makes no sense without a global step.
void validate_async(const JobSettings& settings) {
  const Sync sync = settings.sync;
  if (settings.min_batch < 1) {
    refuse("min_batch", "0 with sync " + in_quotes(to_string(sync)), "1 or more");
  }
  (void)push_factor(settings.async.rate, 1, 1, 1, 0);
  require_full_precision(settings);
  require_bsp(settings.rate.rule != RateRule::kAdaScale, "lr_rule", "adascale", sync);
  require_bsp(settings.on_nonfinite != OnNonFinite::kRollBack, "on_nonfinite", "rollback", sync);
}

// What makes no sense where workers take steps of their own within a round.
void validate_local(const JobSettings& settings) {
  const Sync sync = settings.sync;
  require(
      settings.global_batch <= kMostLocalBatch,
      "global_batch",
      settings.global_batch,
      "up to " + std::to_string(kMostLocalBatch) + " with sync 'local'");
  require(settings.granularity == 1, "granularity", settings.granularity, "1 with sync 'local'");
  require(settings.rate.warmup_steps == 0.0, "warmup_steps", settings.rate.warmup_steps, "0 with sync 'local'");
  require_full_precision(settings);
  require_bsp(settings.rate.rule != RateRule::kAdaScale, "lr_rule", "adascale", sync);
  require_bsp(settings.on_nonfinite != OnNonFinite::kRollBack, "on_nonfinite", "rollback", sync);
  require_bsp(settings.on_bad_sample == "stop", "on_bad_sample", "skip", sync);
}

// Choices that the framework does not have.
void validate_choices(const JobSettings& settings, Framework framework) {
  const auto [taker, named] = framework == Framework::kTorch        ? std::pair{kTorch, "PyTorch"}
                              : framework == Framework::kTensorFlow ? std::pair{kTensorFlow, "TensorFlow"}
                                                                    : std::pair{kCommandLine, "the native engine"};
  JobSettings copy = settings;
  for (const JobOption& option : job_options(copy)) {
    const auto found = option.takers.find(option.get());
    if (found != option.takers.end() && (found->second & taker) == 0) {
      refuse(option.name, shown(option), joined(option.choices_of(taker), ", ") + " with " + named);
    }
  }
}

void validate_python(const JobSettings& settings) {
  if (in_step(settings.sync)) {
    return;
  }
  require_bsp(settings.weighting == Weighting::kExact, "weighting", "mean", settings.sync);
  require_bsp(settings.on_bad_sample == "stop", "on_bad_sample", "skip", settings.sync);
}

}  // namespace

std::vector<std::string> JobOption::choices_of(JobOptionTraits taker) const {
  std::vector<std::string> taken = choices;
  std::erase_if(taken, [this, taker](const std::string& choice) {
    const auto found = takers.find(choice);
    return found != takers.end() && (found->second & taker) == 0;
  });
  return taken;
}

std::vector<JobOption> job_options(JobSettings& settings) {
  Table table;
  add_split(table, settings);
  add_sync(table, settings);
  add_rounds(table, settings);
  add_rate(table, settings);
  add_worker(table, settings);
  add_exchange(table, settings);
  add_failures(table, settings);
  return table.take();
}

const JobOption* find_option(std::span<const JobOption> options, std::string_view name) {
  for (const JobOption& option : options) {
    if (option.name == name || std::ranges::find(option.aliases, name) != option.aliases.end()) {
      return &option;
    }
  }
  return nullptr;
}

void validate(const JobSettings& settings, Framework framework) {
  validate_rows(settings);
  (void)make_policy(settings.policy);
  validate_choices(settings, framework);
  if (settings.sync == Sync::kLocal) {
    validate_local(settings);
  } else if (settings.sync != Sync::kBsp) {
    validate_async(settings);
  }
  if (framework != Framework::kNative) {
    validate_python(settings);
  }
}

std::map<std::string, std::string, std::less<>> option_texts(const JobSettings& settings, JobOptionTraits trait) {
  JobSettings copy = settings;
  std::map<std::string, std::string, std::less<>> texts;
  for (const JobOption& option : job_options(copy)) {
    if (option.is(trait)) {
      texts.emplace(option.name, option.get());
    }
  }
  return texts;
}

Worker describe(const JobSettings& settings, std::string_view device) {
  return {
      .kind = settings.kind.empty() ? std::string(device) : settings.kind,
      .weight = settings.weight,
      .min_batch = settings.min_batch,
      .max_batch = std::min(settings.max_batch, settings.global_batch),
      .granularity = settings.granularity,
      .name = settings.name};
}

void DataParallelOptions::validate() const {
  require_between("bucket_bytes", bucket_bytes, kLeastBucket, kMostBucket);
}

}  // namespace isochron
