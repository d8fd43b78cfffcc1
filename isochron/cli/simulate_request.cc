#include "isochron/cli/simulate_request.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

#include "isochron/cli/cluster_option.h"
#include "isochron/cli/options.h"
#include "isochron/cli/policy_list.h"
#include "isochron/core/error.h"
#include "isochron/io/former_run_file.h"
#include "isochron/io/units.h"
#include "isochron/sim/fleet.h"

namespace isochron::cli {
namespace {

constexpr const char* kAllSyncs = "all";

std::vector<std::string> sync_choices() {
  std::vector<std::string> choices = all_names(kSyncNames);
  choices.emplace_back(kAllSyncs);
  return choices;
}

void add_run_group(CLI::App& command, SimulateRequest& request) {
  const std::string group = "Run";
  command.add_option("--cluster", request.cluster, "A built-in cluster (see 'isochron clusters') or a cluster file")
      ->type_name("NAME|FILE.toml")
      ->capture_default_str()
      ->group(group);
  command.add_option("--policy", request.policies, "Policies with their options (see 'isochron policies'), or oracle")
      ->type_name("A,B:key=value,C")
      ->capture_default_str()
      ->group(group);
  add_choice(command, "--device", request.device, {"cpu", "gpu"}, "lb-bsp: its algorithm for this kind of cluster")
      ->group(group);
  sim::Options& options = request.options;
  add_whole(command, "--global-batch", options.global_batch, 1, kMostCount, "Samples per step, all workers together")
      ->group(group);
  add_whole(command, "--steps", options.steps, 1, kMostCount, "Length of the run")->group(group);
  add_whole(
      command,
      "--seed",
      request.seed,
      0,
      std::numeric_limits<std::int64_t>::max(),
      "What the noise is drawn from; every policy sees the same")
      ->group(group);
  command.add_flag("--nominal-weights", options.nominal_weights, "Tell the policies the workers' cores")->group(group);
  command
      .add_option("--start-from", request.start_from, "The log of an earlier run, whose speeds the first split follows")
      ->type_name("FILE")
      ->group(group);
}

void add_cluster_group(CLI::App& command, SimulateRequest& request) {
  const std::string group = "Cluster (beats what the cluster says)";
  const auto set_noise = [&request](const std::string& text) { request.noise = parse_noise(text); };
  add_value(command, "--noise", "SIGMA", "Standard deviation of the logarithm of step times", set_noise)->group(group);
  const auto set_rate = [&request](const std::string& text) { request.link_rate = io::parse_rate(text); };
  add_value(command, "--link-rate", "RATE", "The bandwidth of every worker's link, such as 10gbit", set_rate)
      ->group(group);
  const auto set_delay = [&request](const std::string& text) { request.link_delay = io::parse_duration(text); };
  add_value(command, "--link-delay", "TIME", "The latency of every worker's link, such as 200us", set_delay)
      ->group(group);
}

void add_lengths_group(CLI::App& command, SimulateRequest& request) {
  request.samples.add_options(command);
  add_choice(command, "--deal", request.deal, {"cost", "count", "both"}, "What shares are: work, or samples as drawn")
      ->group(kLengthsGroup);
}

void add_training_group(CLI::App& command, SimulateRequest& request) {
  const std::string group = "Training";
  sim::Options& options = request.options;
  add_choice(command, "--sync", request.sync, sync_choices(), "How workers wait for one another; all: which is fastest")
      ->group(group);
  add_whole(
      command, "--staleness", options.staleness, 0, kMostCount, "ssp: steps ahead of the slowest worker; all: 0 is 3")
      ->group(group);
  add_whole(command, "--round-steps", options.round_steps, 0, kMostCount, "local: steps between exchanges; 0: chosen")
      ->group(group);
  add_number(
      command, "--network-share", options.network_share, "local: share of the time for exchanges, if steps are chosen")
      ->group(group);
  const auto set_size = [&options](const std::string& text) { options.network.gradient_bytes = io::parse_size(text); };
  add_value(command, "--gradient-bytes", "SIZE", "Exchanged per step, such as 45mbyte; 0: free", set_size)
      ->default_str("0")
      ->group(group);
  add_whole(
      command, "--buckets", options.network.buckets, 1, kMostCount, "The gradient is exchanged in so many buckets")
      ->group(group);
  command.add_flag("--no-overlap", request.no_overlap, "Exchange only after the last gradient")->group(group);
  add_choice(
      command,
      "--lr-rule",
      request.rate_rule,
      all_names(kRateRuleNames),
      "How the learning rate follows the global batch")
      ->group(group);
  add_whole(
      command, "--reference-batch", options.rate.reference_batch, 0, kMostCount, "Batch the rate was tuned for; 0: B")
      ->group(group);
  add_number(command, "--warmup-steps", options.rate.warmup_steps, "At the reference batch")->group(group);
}

void add_output_group(CLI::App& command, SimulateRequest& request) {
  request.output.add_option(command);
  const std::string several = "; with several policies each gets a file with its name inserted";
  command.add_option("--log", request.log, "Write the run log" + several)->type_name("FILE")->group("Output");
  command.add_option("--trace", request.trace, "Write a Chrome/Perfetto trace" + several)
      ->type_name("FILE")
      ->group("Output");
}

}  // namespace

void SimulateRequest::add_options(CLI::App& command) {
  add_run_group(command, *this);
  add_cluster_group(command, *this);
  add_lengths_group(command, *this);
  add_training_group(command, *this);
  add_output_group(command, *this);
}

std::vector<std::string> SimulateRequest::checked_policies() const {
  try {
    std::vector<std::string> checked = parse_policies(policies);
    if (device == "gpu") {
      std::ranges::replace(checked, "lb-bsp", "lb-bsp:device=gpu");
    }
    return checked;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--policy: " + std::string(error.what()));
  }
}

sim::Options SimulateRequest::checked_options() const {
  sim::Options checked = options;
  checked.seed = static_cast<std::uint64_t>(seed);
  checked.sync = checked_syncs().front();
  checked.network.overlap = !no_overlap;
  checked.rate.rule = parse_rate_rule(rate_rule);
  checked.lengths = checked_lengths();
  if (!start_from.empty()) {
    checked.former = io::read_former_run(start_from);
  }
  checked.validate();
  if (sync == kAllSyncs) {
    require(!checked.lengths, "--sync", in_quotes(sync), "bsp, since samples have lengths");
    checked.staleness = options.staleness > 0 ? options.staleness : JobSettings{}.async.staleness;
    return checked;
  }
  if (options.staleness > 0 && checked.sync != Sync::kSsp) {
    throw std::invalid_argument("--staleness is given with --sync " + sync + "; permitted: with --sync ssp or all");
  }
  if ((options.round_steps > 0 || options.network_share != sim::Options{}.network_share) &&
      checked.sync != Sync::kLocal) {
    throw std::invalid_argument(
        "--round-steps or --network-share is given with --sync " + sync + "; permitted: with --sync local or all");
  }
  return checked;
}

std::vector<Sync> SimulateRequest::checked_syncs() const {
  if (sync == kAllSyncs) {
    return {Sync::kBsp, Sync::kLocal, Sync::kAsp, Sync::kSsp};
  }
  return {parse_name(kSyncNames, "--sync", sync)};
}

std::optional<sim::Lengths> SimulateRequest::checked_lengths() const {
  std::optional<sim::Lengths> checked = samples.checked();
  require(checked || deal == "cost", "--deal", in_quotes(deal), "with --lengths");
  if (checked) {
    checked->by_cost = deal != "count";
  }
  return checked;
}

sim::ClusterSpec SimulateRequest::checked_cluster() const {
  sim::ClusterSpec loaded = load_cluster(cluster, options.steps);
  for (sim::WorkerSpec& worker : loaded.workers) {
    worker.noise.sigma = noise.value_or(worker.noise.sigma);
    worker.link.bytes_per_second = link_rate.value_or(worker.link.bytes_per_second);
    worker.link.delay_seconds = link_delay.value_or(worker.link.delay_seconds);
  }
  try {
    Roster{.workers = sim::Fleet(loaded, options.seed).roster(false), .global_batch = options.global_batch}.validate();
  } catch (const std::invalid_argument& refused) {
    throw std::invalid_argument("--global-batch: " + std::string(refused.what()));
  }
  return loaded;
}

}  // namespace isochron::cli
