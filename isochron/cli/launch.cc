#include "isochron/emulate/launch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/cli/cluster_option.h"
#include "isochron/cli/commands.h"
#include "isochron/cli/help.h"
#include "isochron/cli/options.h"
#include "isochron/cli/program.h"
#include "isochron/emulate/machine.h"
#include "isochron/emulate/process.h"

namespace isochron::cli {
namespace {

struct LaunchRequest {
  std::int64_t workers = 0;  // 0: as many as the cluster has
  std::string cluster;       // empty: none
  std::int64_t steps = 0;    // 0: as the command says
  std::string throttle = "auto";
  std::int64_t period_ms = 10;
  std::string mpirun;
  std::vector<std::string> mpirun_options;
  std::int64_t replacements = 0;
  std::int64_t restarts = 0;
  bool no_recovery = false;
  double start_timeout = 300.0;  // seconds
  double stop_timeout = 300.0;
  std::string attach;  // empty: a job of its own
  bool quiet = false;
  std::vector<std::string> command;
};

/// A --steps of the command itself; 0 if it has none.
std::int64_t steps_of(const std::vector<std::string>& command) {
  const std::string option = "--steps";
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string text;
    if (command[i] == option && i + 1 < command.size()) {
      text = command[i + 1];
    } else if (command[i].starts_with(option + "=")) {
      text = command[i].substr(option.size() + 1);
    }
    std::istringstream stream(text);
    if (std::int64_t steps = 0; stream >> steps && steps > 0) {
      return steps;
    }
  }
  return 0;
}

sim::ClusterSpec cluster_of(const LaunchRequest& request) {
  if (is_cluster_file(request.cluster)) {
    return load_cluster(request.cluster, 0);
  }
  const std::int64_t steps = request.steps > 0 ? request.steps : steps_of(request.command);
  const sim::ClusterSpec cluster = load_cluster(request.cluster, steps);
  if (!cluster.changes.empty() && steps == 0) {
    throw std::invalid_argument(
        "--cluster is '" + request.cluster + "', which changes during the run; permitted: with --steps N, its length");
  }
  return emulate::fit_to_machine(cluster, emulate::machine_cores());
}

/// The cluster of a file, each time that it was written anew.
std::function<std::optional<sim::ClusterSpec>()> watch_file(
    const std::string& file, const std::function<void(const std::string&)>& say) {
  return [file, say, seen = std::filesystem::last_write_time(file)]() mutable -> std::optional<sim::ClusterSpec> {
    std::error_code gone;  // for a moment, while an editor puts another one in its place
    const auto now = std::filesystem::last_write_time(file, gone);
    if (gone || now == seen) {
      return std::nullopt;
    }
    seen = now;
    try {
      return load_cluster(file, 0);
    } catch (const std::exception& error) {
      say("the cluster's file has changed and is left out: " + std::string(error.what()));
      return std::nullopt;
    }
  };
}

/// A command of this program becomes this program with that command.
std::vector<std::string> full_command(const std::vector<std::string>& command, const CLI::App& program) {
  const auto is_named = [&command](const CLI::App* candidate) { return candidate->get_name() == command.front(); };
  if (std::ranges::any_of(program.get_subcommands({}), is_named)) {
    std::vector<std::string> full{std::filesystem::read_symlink("/proc/self/exe").string()};
    full.insert(full.end(), command.begin(), command.end());
    return full;
  }
  if (emulate::find_program(command.front()).empty()) {
    const std::string advice =
        command.front().ends_with(".py") ? "; for a script: python -m isochron.launch -n N " + command.front() : "";
    throw std::invalid_argument(
        "the command is '" + command.front() + "'" + advice + "; permitted: a program, or one of " +
        joined(command_names(program), ", "));
  }
  return command;
}

bool has_word(const std::vector<std::string>& command, const std::string& word) {
  return std::ranges::any_of(
      command, [&word](const std::string& one) { return one == word || one.starts_with(word + "="); });
}

/// A job that was lost as a whole is started again from its last checkpoint, as those on an MPI without fault tolerance
/// have to be.
int launch_with_restarts(emulate::LaunchOptions options, std::int64_t restarts) {
  if (restarts > 0 && !has_word(options.command, "--checkpoints")) {
    throw std::invalid_argument(
        "--restarts is " + std::to_string(restarts) + "; permitted: with a command that has --checkpoints FOLDER");
  }
  while (true) {
    options.starts_again = restarts > 0;
    const auto [status, asked_to_end] = emulate::launch(options);
    if (status == 0 || status == kBadUsage || asked_to_end || restarts == 0) {
      return status;
    }
    --restarts;
    options.say("the job ended with " + std::to_string(status) + "; it is started again from its last checkpoint");
    if (!has_word(options.command, "--resume")) {
      options.command.insert(options.command.end(), {"--resume", "auto"});
    }
  }
}

void run_launch(const LaunchRequest& request, const CLI::App& program) {
  emulate::LaunchOptions options;
  options.say = [quiet = request.quiet](const std::string& text) {
    if (!quiet) {
      std::cerr << "isochron launch: " + text + "\n";
    }
  };
  if (!request.attach.empty()) {
    if (!request.command.empty() || !request.cluster.empty()) {
      throw std::invalid_argument("--attach is given with a command or a cluster; permitted: with -n N only");
    }
    emulate::attach(request.attach, std::max<std::int64_t>(request.workers, 1), options.say);
    return;
  }
  if (request.command.empty()) {
    throw std::invalid_argument("no command for the workers; permitted: isochron launch OPTIONS -- COMMAND");
  }
  options.command = full_command(request.command, program);
  if (!request.cluster.empty()) {
    options.cluster = cluster_of(request);
    options.workers = static_cast<std::int64_t>(options.cluster->workers.size());
    if (is_cluster_file(request.cluster)) {
      options.changed_cluster = watch_file(request.cluster, options.say);
    }
  } else if (request.workers == 0) {
    throw std::invalid_argument("the number of workers is missing; permitted: -n N, or --cluster");
  }
  if (request.workers > 0) {
    options.workers = request.workers;
  }
  options.throttle = emulate::parse_throttle(request.throttle);
  options.period_microseconds = request.period_ms * 1000;
  options.mpirun = request.mpirun;
  options.mpirun_options = request.mpirun_options;
  options.replacements = request.replacements;
  options.recovery = !request.no_recovery;
  options.start_timeout = std::chrono::milliseconds(std::llround(request.start_timeout * 1000.0));
  options.stop_timeout = std::chrono::milliseconds(std::llround(request.stop_timeout * 1000.0));
  throw CLI::RuntimeError(launch_with_restarts(std::move(options), request.restarts));
}

}  // namespace

void add_launch(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("launch", "Start the workers of a job on this machine");
  const auto request = std::make_shared<LaunchRequest>();
  add_whole(*command, "-n,--workers", request->workers, 1, 100'000, "Workers")
      ->default_str("as many as the cluster has");
  command->add_option("--cluster", request->cluster, "Emulate this one: built-in (see 'isochron clusters') or a file")
      ->type_name("NAME|FILE.toml");
  add_whole(
      *command, "--steps", request->steps, 1, kMostCount, "Length of the run that a built-in cluster's changes span")
      ->default_str("--steps of the COMMAND");
  add_choice(*command, "--throttle", request->throttle, {"auto", "cgroup", "duty-cycle"}, "How CPU time is limited");
  add_whole(*command, "--period-ms", request->period_ms, 1, 1000, "Period of the CPU quotas");
  command->add_option("--mpirun", request->mpirun, "The mpirun to use")->type_name("PROGRAM");
  const auto add_arguments = [request](const std::string& text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      request->mpirun_options.push_back(word);
    }
  };
  command
      ->add_option_function<std::string>(
          "--mpirun-option", add_arguments, "Arguments to pass on to it, any number of times")
      ->type_name("WORDS")
      ->trigger_on_parse();
  add_whole(*command, "--replace", request->replacements, 0, kMostCount, "Start up to N workers in place of lost ones");
  command->add_flag("--no-recovery", request->no_recovery, "Let a lost worker end the job, as MPIs without ULFM do");
  add_whole(
      *command, "--restarts", request->restarts, 0, kMostCount, "Start a lost job again, from its last checkpoint");
  add_number(*command, "--start-timeout", request->start_timeout, "Seconds until workers must take part in the job");
  add_number(*command, "--stop-timeout", request->stop_timeout, "Seconds until workers must end that were asked to");
  command->add_option("--attach", request->attach, "Add -n workers to the job of this launcher, and end")
      ->type_name("PROCESS");
  command->add_flag("--quiet", request->quiet, "Say nothing of limits and changes");
  command->add_option("COMMAND", request->command, "What each worker runs: a command of isochron, or any program");
  command->footer(
      "A built-in cluster is scaled to this machine: no worker gets more than one core, all together not more than\n"
      "three quarters of the machine. A file is taken literally, and again whenever it is written anew: workers that "
      "are\n"
      "new in it join, those that are gone from it are killed, and all get the cores it says. The exit status is the\n"
      "job's.\n"
      "Examples:\n"
      "  isochron launch -n 4 -- train --global-batch 128\n"
      "  isochron launch --cluster hl8 -- train --global-batch 512\n"
      "  isochron launch -n 4 --replace 10 -- train --global-batch 128\n"
      "  isochron launch --attach 4711 -n 1\n"
      "  isochron launch --cluster mine.toml --mpirun-option='--mca btl_base_verbose 10' -- ./program");
  command->final_callback([request, &program] { run_launch(*request, program); });
}

}  // namespace isochron::cli
