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
}

}  // namespace isochron
