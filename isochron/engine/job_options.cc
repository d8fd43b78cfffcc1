#include <stdexcept>
#include <string>

#include "isochron/engine/job.h"

namespace isochron {
namespace {

void require_at_least(const char* field, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw std::invalid_argument(
        std::string(field) + " is " + std::to_string(value) + "; permitted: " + std::to_string(least) + " or more");
  }
}

// What makes no sense without a global step.
void validate_async(const JobOptions& options) {
  require_at_least("staleness", options.async.staleness, 0);
  require_at_least("servers", options.async.servers, 0);
  require_at_least("min_batch in asynchronous modes", options.min_batch, 1);
  (void)push_factor(options.async.rate, 1, 1, 1, 0);
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument(what + " with asynchronous training; permitted: with sync bsp");
  };
  if (options.gradients.compression != Compression::kNone) {
    refuse("compression is set");
  }
  if (options.rate.rule == RateRule::kAdaScale) {
    refuse("the learning-rate rule is adascale");
  }
  if (options.numbers == Numbers::kRollBack) {
    refuse("numbers is rollback");
  }
}

}  // namespace

void JobOptions::validate() const {
  require_at_least("global_batch", global_batch, 1);
  require_at_least("min_batch", min_batch, 0);
  require_at_least("max_batch", max_batch, 1);
  require_at_least("granularity", granularity, 1);
  require_at_least("micro_batch", micro_batch, 0);
  require_at_least("timeout in milliseconds", timeout.count(), 1);
  if (!(weight >= 0.0)) {
    throw std::invalid_argument("weight is " + std::to_string(weight) + "; permitted: 0 or more");
  }
  gradients.validate();
  if (sync != Sync::kBsp) {
    validate_async(*this);
  }
}

}  // namespace isochron
