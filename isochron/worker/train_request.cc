#include "isochron/worker/train_request.h"

#include <stdexcept>

#include <unistd.h>

#include "isochron/cli/config_option.h"
#include "isochron/cli/options.h"
#include "isochron/core/trace/json.h"

namespace isochron::worker {

void TrainRequest::add_options(CLI::App& command) {
  training.add_options(command);
  cli::add_config_option(command, config);
  const std::string group = "Output";
  output.add_option(command);
  command
      .add_option(
          "--log", log, "Write the run log, step by step; a resumed run adds to it, that of another run is set aside")
      ->type_name("FILE")
      ->group(group);
  cli::add_choice(command, "--log-errors", log_errors, {"warn", "stop"}, "What to do if the log cannot be written")
      ->group(group);
  command.add_option("--trace", trace, "Write a Chrome/Perfetto trace")->type_name("FILE")->group(group);
  cli::add_whole(command, "--serve", serve_port, 0, 65535, "Serve the live page at this port; 0: any that is free")
      ->default_str("not")
      ->group(group);
  command.add_option("--serve-host", serve.host, "Address of the page; other than loopback needs --serve-token")
      ->capture_default_str()
      ->group(group);
  command.add_option("--serve-token", serve.token, "What a request must bring")
      ->type_name("T")
      ->envname(cli::kTokenVariable)
      ->group(group);
  cli::add_choice(command, "--progress", progress, {"auto", "line", "plain", "off"}, "auto: a line on a terminal")
      ->group(group);
  command.add_flag("--quiet", quiet, "Nothing but errors and what --json writes")->group(group);
  cli::add_whole(command, "--eval-every", evaluate_every, 0, 1'000'000, "Epochs between evaluations; 0: none at all")
      ->group(group);
  cli::add_number(command, "--target-accuracy", target_accuracy, "Stop when an evaluation reaches it, 0 to 1; 0: none")
      ->group(group);
}

void TrainRequest::check() const {
  cli::check_distinct_outputs({output.target(), log, trace});
  if (serve_port >= 0) {
    try {
      serve.validate();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("--serve-" + std::string(error.what()));
    }
  }
  if (target_accuracy > 1.0) {
    throw std::invalid_argument("--target-accuracy is " + json_number(target_accuracy) + "; permitted: 0 to 1");
  }
  if (target_accuracy > 0.0 && evaluate_every == 0) {
    throw std::invalid_argument("--target-accuracy is given with --eval-every 0; permitted: with evaluations");
  }
}

ProgressStyle TrainRequest::progress_style() const {
  if (quiet || progress == "off") {
    return ProgressStyle::kOff;
  }
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return progress == "line" || (progress == "auto" && terminal) ? ProgressStyle::kLine : ProgressStyle::kPlain;
}

}  // namespace isochron::worker
