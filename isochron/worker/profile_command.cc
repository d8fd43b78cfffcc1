#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "isochron/cli/json_output.h"
#include "isochron/cli/options.h"
#include "isochron/cli/table.h"
#include "isochron/core/trace/json.h"
#include "isochron/io/profile_file.h"
#include "isochron/worker/commands.h"
#include "isochron/worker/profile_progress.h"
#include "isochron/worker/profiler.h"

namespace isochron::worker {
namespace {

constexpr std::int64_t kMostBatch = 1 << 20;

struct ProfileRequest {
  ProfilerOptions options;
  std::string data = "data";
  bool no_augment = false;
  std::string output;
  bool quiet = false;
};

void add_profile_options(CLI::App& command, ProfileRequest& request) {
  train::Options& training = request.options.training;
  const auto add_text = [&command](const char* name, std::string& value, const char* type, const char* help) {
    return command.add_option(name, value, help)->type_name(type)->capture_default_str();
  };
  const std::string what = "What to measure";
  add_text("--model", training.model, "NAME[:key=value,…]", "As for 'isochron train'")->group(what);
  add_text("--dataset", training.dataset, "NAME", "As for 'isochron train'")->group(what);
  add_text("--data", request.data, "FOLDER", "Where 'make data' has put the datasets")->group(what);
  cli::add_whole(command, "--context", training.context, 1, 1 << 20, "Tokens of a sample, for datasets of tokens")
      ->group(what);
  cli::add_whole(command, "--train-samples", training.train_samples, 0, 1'000'000'000, "Use only the first N; 0: all")
      ->group(what);
  command.add_flag("--no-augment", request.no_augment, "Images as they are, not flipped and cropped")->group(what);
  add_text("--optimizer", training.optimizer, "NAME[:key=value,…]", "One of sgd, adam, adamw")->group(what);
  const std::string how = "How";
  add_text("--device", training.device, "cpu|cuda|cuda:N|auto", "Where it computes")->group(how);
  cli::add_whole(command, "--threads", training.threads, 0, 1024, "LibTorch's; 0: as it likes")->group(how);
  cli::add_whole(
      command, "--min-batch", request.options.min_batch, 1, kMostBatch, "The first size; each is twice the last")
      ->group(how);
  cli::add_whole(command, "--max-batch", request.options.max_batch, 1, kMostBatch, "No size is larger")->group(how);
  cli::add_number(command, "--seconds", request.options.seconds, "For all of it, about")->group(how);
  command.add_option("-o,--output", request.output, "The profile, as JSON")
      ->type_name("FILE.json")
      ->required()
      ->group("Output");
  command.add_flag("--quiet", request.quiet, "Nothing but errors")->group("Output");
}

ProfilerOptions checked_profile(const ProfileRequest& request) {
  ProfilerOptions options = request.options;
  options.training.data = request.data;
  options.training.augment = !request.no_augment;
  options.training.job.global_batch = options.max_batch;
  options.training.test_samples = 1;
  if (options.min_batch > options.max_batch) {
    throw std::invalid_argument(
        "--min-batch is " + std::to_string(options.min_batch) + "; permitted: at most --max-batch, " +
        std::to_string(options.max_batch));
  }
  if (options.seconds <= 0.0) {
    throw std::invalid_argument("--seconds is " + json_number(options.seconds) + "; permitted: above 0");
  }
  options.training.validate();
  return options;
}

std::string summary(const plan::Profile& profile) {
  std::vector<std::vector<std::string>> rows{{"batch", "p50 ms", "p90 ms", "samples/s", "peak MB", "readings"}};
  for (const plan::ProfilePoint& point : profile.points) {
    rows.push_back(
        {std::to_string(point.batch),
         cli::fixed(1e3 * point.p50_seconds, 2),
         cli::fixed(1e3 * point.p90_seconds, 2),
         cli::fixed(static_cast<double>(point.batch) / point.p50_seconds, 1),
         cli::fixed(1e-6 * point.bytes, 0),
         std::to_string(point.readings)});
  }
  const BentFit fit = profile.fit();
  return cli::format_table(rows) + "\nA step of b samples takes about " + cli::fixed(1e3 * fit.line.fixed, 2) +
         " ms + b x " + cli::fixed(1e3 * fit.line.slope, 4) + " ms" +
         (fit.line.floor > 0.0 ? ", at least " + cli::fixed(1e3 * fit.line.floor, 2) + " ms" : "") + " (off by " +
         cli::fixed(100.0 * fit.misfit, 1) + " %), the optimizer " + cli::fixed(1e3 * profile.update_seconds, 2) +
         " ms,\na sample's preparation " + cli::fixed(1e6 * profile.prepare_seconds, 1) + " us.\n";
}

void run_profile(const ProfileRequest& request) {
  ProfilerOptions options = checked_profile(request);
  const auto file = cli::open_output("--output", request.output);
  const ProgressStyle style = request.quiet                  ? ProgressStyle::kOff
                              : ::isatty(STDERR_FILENO) == 1 ? ProgressStyle::kLine
                                                             : ProgressStyle::kPlain;
  ProfileProgress progress(std::cerr, style);
  options.on_news = [&progress](const ProfileNews& news) {
    progress.show(news.batch, news.seconds, news.done, news.left_seconds);
  };
  const ProfilerResults results = measure_profile(options);
  progress.finish();
  if (!results.first) {
    return;
  }
  file->stream() << io::to_json(results.profile, ISOCHRON_VERSION);
  file->commit();
  if (!request.quiet) {
    std::cout << summary(results.profile);
  }
}

}  // namespace

void add_profile(CLI::App& program) {
  CLI::App* const command =
      program.add_subcommand("profile", "Measure what a model takes on this machine, for 'isochron plan'");
  const auto request = std::make_shared<ProfileRequest>();
  add_profile_options(*command, *request);
  command->footer(
      "Example:\n"
      "  isochron profile --model resnet18 --dataset cifar10 -o resnet18.json && \\\n"
      "  isochron plan --machines lab.toml --model-profile resnet18.json");
  command->final_callback([request] { run_profile(*request); });
}

}  // namespace isochron::worker
