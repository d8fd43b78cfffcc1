#include "isochron/sim/meter.h"

#include <algorithm>
#include <utility>

#include "isochron/core/trace/metrics.h"

namespace isochron::sim {
namespace {

constexpr double kNotable = 1.2;  // ratio of speeds that counts as a change

}  // namespace

void Meter::add_step(const Fleet& fleet, double seconds, std::int64_t batches) {
  step_seconds_.push_back(seconds);
  batches_ += batches;
  total_seconds_ += seconds;
  double speed = 0.0;
  for (const Member& member : fleet.members()) {
    speed += fleet.speed(member.index);
  }
  ideal_seconds_ += static_cast<double>(batches * global_batch_) / speed;
}

void Meter::add_round(
    std::span<const double> compute_seconds, std::span<const std::int64_t> batch_sizes, bool changed) {
  round_.resize(compute_seconds.size());
  for (std::size_t i = 0; i < round_.size(); ++i) {
    round_[i].batch = batch_sizes[i];
    round_[i].compute_seconds = compute_seconds[i];
  }
  balance_sum_ += balance(round_);
  ++rounds_;
  adjustments_ += changed ? 1 : 0;
  batch_sizes_.assign(batch_sizes.begin(), batch_sizes.end());
}

void Meter::follow_balance(std::int64_t step, const Fleet& fleet, const Decision& decision) {
  if (speed_changed(fleet)) {
    if (changed_at_) {
      recoveries_.push_back(static_cast<double>(step - *changed_at_));
    }
    changed_at_ = step;
  }
  if ((changed_at_ || !balanced_at_) && judge_.is_good(fleet, decision.batch_sizes)) {
    balanced_at_ = balanced_at_.value_or(step);
    if (changed_at_) {
      recoveries_.push_back(static_cast<double>(step - *changed_at_));
      changed_at_.reset();
    }
  }
}

bool Meter::speed_changed(const Fleet& fleet) {
  bool changed = false;
  for (const Member& member : fleet.members()) {
    if (member.id >= cores_.size()) {
      cores_.resize(member.id + 1, 0.0);
    }
    const double now = fleet.effective_cores(member.index);
    const double before = std::exchange(cores_[member.id], now);
    changed |= before > 0.0 && (now >= kNotable * before || before >= kNotable * now);
  }
  return changed;
}

void Meter::add_push(std::int64_t staleness, std::int64_t lead) {
  ++pushes_;
  staleness_sum_ += static_cast<double>(staleness);
  max_staleness_ = std::max(max_staleness_, staleness);
  max_lead_ = std::max(max_lead_, lead);
}

Result Meter::result() const {
  Result result;
  const auto steps = static_cast<std::int64_t>(step_seconds_.size());
  result.steps = steps;
  result.total_seconds = total_seconds_;
  result.first_step_seconds = step_seconds_.front();
  result.samples_per_second = static_cast<double>(batches_ * global_batch_) / total_seconds_;
  result.step_seconds = quantiles(step_seconds_);
  result.balance = rounds_ == 0 ? 0.0 : balance_sum_ / static_cast<double>(rounds_);
  result.share_of_peak = ideal_seconds_ / total_seconds_;
  result.adjustments = adjustments_;
  result.steps_to_balance = balanced_at_.value_or(steps);
  std::vector<double> recoveries = recoveries_;
  if (changed_at_) {
    recoveries.push_back(static_cast<double>(steps - *changed_at_));
  }
  std::ranges::sort(recoveries);
  result.speed_changes = static_cast<std::int64_t>(recoveries.size());
  result.recovery_steps_p50 = quantile(recoveries, 0.5);
  result.recovery_steps_p90 = quantile(recoveries, 0.9);
  result.mean_staleness = pushes_ == 0 ? 0.0 : staleness_sum_ / static_cast<double>(pushes_);
  result.max_staleness = max_staleness_;
  result.max_lead = max_lead_;
  result.batch_sizes = batch_sizes_;
  return result;
}

}  // namespace isochron::sim
