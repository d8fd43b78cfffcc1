#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/cli/cluster_option.h"
#include "isochron/cli/config_option.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/options.h"
#include "isochron/cli/table.h"
#include "isochron/emulate/launch.h"
#include "isochron/emulate/machine.h"
#include "isochron/worker/commands.h"
#include "isochron/worker/comparison.h"
#include "isochron/worker/training_options.h"

namespace isochron::worker {
namespace {

constexpr std::int64_t kMostTurns = 1'000'000;

struct CompareRequest {
  TrainingOptions training;
  std::string config;
  std::string cluster = "hl8";
  std::int64_t rounds = 3;
  std::int64_t turn = 10;
  double solo_seconds = 4.0;
  std::int64_t evaluate_every = 0;
  double target_accuracy = 0.0;
  std::string logs;
  std::string throttle = "auto";
  bool quiet = false;
  bool inside = false;  // this is one of the workers that the command has started
  cli::JsonOutput output;
};

void add_comparison_options(CLI::App& command, CompareRequest& request) {
  request.training.options.job.policy = "uniform,isochron";
  request.training.options.steps = 60;
  request.training.add_options(command);
  command.get_option("--policy")
      ->type_name("LIST")
      ->description("Policies, each with +mean, +linear, … for what differs; oracle too");
  const std::string group = "Comparison";
  command.add_option("--cluster", request.cluster, "Built-in (see 'isochron clusters') or a file")
      ->type_name("NAME|FILE.toml")
      ->capture_default_str()
      ->group(group);
  cli::add_whole(command, "--rounds", request.rounds, 1, kMostTurns, "Every policy is trained anew in each")
      ->group(group);
  cli::add_whole(command, "--turn", request.turn, 1, kMostTurns, "Steps before it is the next policy's turn")
      ->group(group);
  cli::add_number(command, "--solo-seconds", request.solo_seconds, "To measure every worker by itself; 0: not")
      ->group(group);
  cli::add_whole(command, "--evaluate-every", request.evaluate_every, 0, kMostTurns, "Steps; 0: at the end")
      ->group(group);
  cli::add_number(command, "--target-accuracy", request.target_accuracy, "Ask for the time to it, 0 to 1; 0: none")
      ->group(group);
  cli::add_choice(command, "--throttle", request.throttle, {"auto", "cgroup", "duty-cycle"}, "How speeds are limited")
      ->group(group);
  request.output.add_option(command);
  command.add_option("--logs", request.logs, "Folder for the run logs")->type_name("FOLDER")->group("Output");
  command.add_flag("--quiet", request.quiet, "No progress")->group("Output");
  command.add_flag("--inside", request.inside)->group("");
  cli::add_config_option(command, request.config);
}

sim::ClusterSpec cluster_of(const CompareRequest& request, std::int64_t steps) {
  const sim::ClusterSpec cluster = cli::load_cluster(request.cluster, steps);
  for (const sim::Change& change : cluster.changes) {
    if (change.event != Event::kSpeed || change.at_seconds) {
      throw std::invalid_argument(
          "--cluster is '" + request.cluster +
          "', which has events or changes by the clock; permitted: speeds that "
          "change at steps, so that all policies meet the same");
    }
  }
  return cli::is_cluster_file(request.cluster) ? cluster : emulate::fit_to_machine(cluster, emulate::machine_cores());
}

ComparisonOptions checked_comparison(const CompareRequest& request, const CLI::App& command) {
  ComparisonOptions options;
  TrainingOptions training = request.training;
  const std::string policies = std::exchange(training.options.job.policy, "uniform");
  for (const char* const option : {"--checkpoints", "--resume"}) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(std::string(option) + " is given; permitted: with 'isochron train'");
    }
  }
  options.training = training.checked(command);
  if (options.training.job.sync == Sync::kLocal) {
    throw std::invalid_argument("--sync is 'local'; permitted: bsp, asp, ssp; rounds with 'isochron train'");
  }
  options.steps = options.training.steps;
  if (options.steps == 0) {
    throw std::invalid_argument("--steps is 0; permitted: 1 or more, the length of every policy's run");
  }
  try {
    options.lanes =
        parse_lanes(policies, {.weighting = options.training.job.weighting, .rate = options.training.job.rate.rule});
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--policy: " + std::string(error.what()));
  }
  for (const Lane& lane : options.lanes) {
    if (lane.policy == "oracle" && request.solo_seconds == 0) {
      throw std::invalid_argument("--solo-seconds is 0; permitted with the policy oracle: more than 0");
    }
  }
  if (request.target_accuracy > 1) {
    throw std::invalid_argument(
        "--target-accuracy is " + std::to_string(request.target_accuracy) + "; permitted: 0 to 1");
  }
  options.cluster = cluster_of(request, options.steps);
  options.rounds = request.rounds;
  options.turn = request.turn;
  options.solo_seconds = request.solo_seconds;
  options.evaluate_every = request.evaluate_every;
  options.target_accuracy = request.target_accuracy;
  options.logs = request.logs;
  return options;
}

/// The launcher's cluster has the servers, too. The paper's server had 8 of its machine's cores, whose workers had 40;
/// divided by 32 like the workers' that is a quarter of a core.
sim::ClusterSpec with_servers(sim::ClusterSpec cluster, std::int64_t servers) {
  constexpr double kServerCores = 0.25;
  for (std::int64_t i = 1; i <= servers; ++i) {
    cluster.workers.push_back({.name = "server-" + std::to_string(i), .cores = kServerCores});
  }
  return cluster;
}

/// The command line of this process, its name left out.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  arguments.erase(arguments.begin());
  return arguments;
}

/// The command starts itself as the workers of an emulated cluster.
int start_workers(const CompareRequest& request, const ComparisonOptions& options) {
  const std::vector<std::string> arguments = own_arguments();
  emulate::LaunchOptions launch;
  const sim::ClusterSpec cluster = with_servers(options.cluster, options.training.job.async.servers);
  launch.cluster = cluster;
  launch.workers = std::ssize(cluster.workers);
  launch.throttle = emulate::parse_throttle(request.throttle);
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  launch.program = self.parent_path() / "isochron";
  launch.command = {self.string()};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  launch.command.emplace_back("--inside");
  if (!request.quiet) {
    launch.say = [](const std::string& text) { std::cerr << "isochron compare: " << text << '\n'; };
  }
  return emulate::launch(launch).status;
}

nlohmann::ordered_json details_of(const ComparisonOptions& options, const ComparisonResults& results) {
  nlohmann::ordered_json details{
      {"cluster", options.cluster.name},
      {"workers", options.cluster.workers.size()},
      {"model", options.training.model},
      {"dataset", options.training.dataset},
      {"global_batch", options.training.job.global_batch},
      {"sync", to_string(options.training.job.sync)},
      {"servers", options.training.job.async.servers},
      {"steps", options.steps},
      {"rounds", options.rounds},
      {"seed", options.training.job.seed}};
  for (const Stage& stage : results.stages) {
    details["solo_samples_per_second"].push_back({{"from_step", stage.first_step}, {"workers", stage.solo}});
  }
  if (results.bound) {
    details["share_of_solo_bound"] = *results.bound;
  }
  return details;
}

void print(const ComparisonOptions& options, const ComparisonResults& results) {
  std::cout << options.cluster.name << ": " << options.cluster.workers.size() << " workers, " << options.training.model
            << " on " << options.training.dataset << ", global batch " << options.training.job.global_batch << ", "
            << options.steps << " steps, "
            << (options.rounds == 1 ? "1 round" : "medians of " + std::to_string(options.rounds) + " rounds") << "\n\n"
            << comparison_table(results.lanes);
  if (results.bound) {
    std::cout << "\nNoise alone permits " << cli::fixed(*results.bound, 3) << " of the solo speeds.\n";
  }
  std::cout << '\n' << comparison_sentence(results.lanes, options.cluster.name) << '\n';
}

void work(CompareRequest& request, ComparisonOptions options) {
  if (!request.quiet) {
    options.say = [](const std::string& words) { std::cerr << "isochron compare: " << words << '\n' << std::flush; };
  }
  const ComparisonResults results = compare(options);
  if (!results.first) {
    return;
  }
  request.output.open();
  if (!request.output.takes_standard_output()) {
    print(options, results);
  }
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  for (std::size_t lane = 0; lane < results.lanes.size(); ++lane) {
    documents.push_back(to_json(results.lanes[lane]));
    for (const auto& round : results.rounds) {
      documents.back()["rounds"].push_back(to_json(round[lane]));
    }
  }
  request.output.write("compare", details_of(options, results), documents);
}

}  // namespace

void add_compare(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("compare", "Train with several policies in turn on an emulated cluster");
  const auto request = std::make_shared<CompareRequest>();
  add_comparison_options(*command, *request);
  command->footer(
      "Examples:\n"
      "  isochron compare --cluster hl8 --policy uniform,omnilearn,lb-bsp,isochron,oracle --steps 60\n"
      "  isochron compare --cluster hl8 --policy uniform+mean,omnilearn+mean,omnilearn,omnilearn+linear \\\n"
      "    --reference-batch 128 --steps 100   # what each published component brings\n"
      "  isochron compare --cluster hl8 --sync asp --servers 1 --steps 200 --turn 200   # how stale updates are");
  command->final_callback([request, command] {
    cli::apply_config(*command, request->config);
    const ComparisonOptions options = checked_comparison(*request, *command);
    if (request->inside) {
      work(*request, options);
      return;
    }
    if (!request->logs.empty()) {
      std::filesystem::create_directories(request->logs);
    }
    request->output.open();  // so that a file that cannot be written is known at once
    throw CLI::RuntimeError(start_workers(*request, options));
  });
}

}  // namespace isochron::worker
