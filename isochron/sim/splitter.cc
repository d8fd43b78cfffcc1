#include "isochron/sim/splitter.h"

#include <utility>

namespace isochron::sim {

bool is_oracle(std::string_view policy) {
  return policy == "oracle" || policy == "late-oracle";
}

Splitter::Splitter(const std::string& policy, Roster roster, const RateOptions& rate)
    : roster_(std::move(roster)), late_(policy == "late-oracle") {
  roster_.validate();
  if (is_oracle(policy)) {
    rate_ = RateSchedule(rate, roster_.global_batch);
  } else {
    controller_.emplace(roster_, ControllerOptions{.policy = policy, .rate = rate});
  }
}

const Decision& Splitter::decide(const Fleet& fleet) {
  if (controller_) {
    return controller_->decision();
  }
  fleet.true_slots(present_);
  Allocation best = allocate(late_ && !past_.empty() ? past_ : present_, roster_.global_batch);
  past_.swap(present_);
  const bool first = decision_.batch_sizes.empty();
  decision_.changed = !first && best.batch_sizes != decision_.batch_sizes;
  decision_.batch_sizes = std::move(best.batch_sizes);
  decision_.learning_rate_factor = rate_.factor(decision_.step);
  decision_.reason = first ? Reason::kStarted : decision_.changed ? Reason::kRebalanced : Reason::kKept;
  decision_.words = "the true speeds are known";
  return decision_;
}

void Splitter::observe(const StepTelemetry& telemetry) {
  if (controller_) {
    controller_->observe(telemetry);
  } else {
    decision_.step = telemetry.step + 1;
  }
}

void Splitter::change_workers(std::vector<Worker> workers) {
  roster_.workers = std::move(workers);
  if (controller_) {
    controller_->change_workers(roster_.workers);
  } else {
    roster_.validate();
    past_.clear();
  }
}

}  // namespace isochron::sim
