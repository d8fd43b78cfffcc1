#include "isochron/train/options.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "isochron/core/policy/registry.h"
#include "isochron/core/trace/json.h"
#include "isochron/data/catalog.h"
#include "isochron/data/require.h"
#include "isochron/train/device.h"
#include "isochron/train/optimizer.h"

namespace isochron::train {
namespace {

using data::require_between;

constexpr std::int64_t kMost = 1'000'000'000;

[[noreturn]] void refuse(std::string_view option, const std::string& value, std::string_view permitted) {
  throw std::invalid_argument(std::string(option) + " is " + value + "; permitted: " + std::string(permitted));
}

void require_number(bool holds, std::string_view option, double value, std::string_view permitted) {
  if (!std::isfinite(value) || !holds) {
    refuse(option, json_number(value), permitted);
  }
}

void check_data(const Options& options) {
  data::check_dataset_name(options.dataset);
  require_between("context", options.context, 1, std::int64_t{1} << 20U);
  require_between("train-samples", options.train_samples, 0, kMost);
  require_between("test-samples", options.test_samples, 0, kMost);
}

void check_learning(const Options& options) {
  require_number(options.learning_rate > 0.0, "learning-rate", options.learning_rate, "above 0");
  require_number(options.momentum >= 0.0 && options.momentum < 1.0, "momentum", options.momentum, "0 or more, below 1");
  require_number(options.weight_decay >= 0.0, "weight-decay", options.weight_decay, "0 or more");
  check_optimizer(options);
}

void check_checkpoints(const Options& options) {
  require_between("checkpoint-every", options.checkpoint_every, 0, kMost);
  require_between("keep", options.keep, 1, kMost);
  if (options.checkpoints.empty() && options.checkpoint_every > 0) {
    refuse("checkpoint-every", std::to_string(options.checkpoint_every), "with checkpoints, their folder");
  }
  if (options.checkpoints.empty() && options.resume == "auto") {
    refuse("resume", "auto", "with checkpoints, their folder");
  }
}

}  // namespace

void Options::validate() const {
  job.validate();
  (void)make_policy(job.policy);
  check_data(*this);
  require_between("epochs", epochs, 1, kMost);
  require_between("steps", steps, 0, kMost);
  check_learning(*this);
  decay(1).validate();
  require_between("threads", threads, 0, 1024);
  require_between("memory-limit", memory_limit, 0, std::numeric_limits<std::int64_t>::max());
  (void)choose_device(device);
  check_checkpoints(*this);
}

DecayOptions Options::decay(std::int64_t total_steps) const {
  return {
      .decay = parse_decay(schedule),
      .total_steps = total_steps,
      .warmup_steps = warmup,
      .step_factor = step_factor,
      .step_every = step_every};
}

}  // namespace isochron::train
