#include "isochron/core/policy/controller.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/policy/legal.h"
#include "isochron/core/policy/per_worker.h"
#include "isochron/core/policy/registry.h"

namespace isochron {
namespace {

// Rounding to whole samples and to the granularity is the controller's job; more than that is a repair.
bool is_repair(const Roster& roster, std::span<const double> wished, std::span<const std::int64_t> batches) {
  const double sum = std::accumulate(wished.begin(), wished.end(), 0.0);
  if (!(std::abs(sum - static_cast<double>(roster.global_batch)) < 0.5)) {
    return true;
  }
  for (std::size_t k = 0; k < wished.size(); ++k) {
    if (std::abs(static_cast<double>(batches[k]) - wished[k]) >= static_cast<double>(roster.workers[k].granularity)) {
      return true;
    }
  }
  return false;
}

std::string repair_words(const Roster& roster, std::span<const double> wished) {
  if (!std::ranges::all_of(wished, [](double wish) { return std::isfinite(wish); })) {
    return "; a proposal that is no number repaired to the split in force";
  }
  const double sum = std::accumulate(wished.begin(), wished.end(), 0.0);
  const auto global_batch = static_cast<double>(roster.global_batch);
  if (std::abs(sum - global_batch) < 0.5 || std::abs(sum) > 1e15) {
    return "; proposal repaired to the nearest split within the bounds";
  }
  const auto units = static_cast<double>(roster.units_per_sample);
  return "; proposal of " + std::to_string(std::llround(sum / units)) + " samples repaired to " +
         std::to_string(roster.global_batch / roster.units_per_sample);
}

// Turns a proposal into the decision for `step`; `current` is the split in force, empty if there is none.
Decision legalise(const Roster& roster, Proposal proposal, std::span<const std::int64_t> current, std::int64_t step) {
  ISO_CHECK(proposal.batches.size() == roster.workers.size(), "a proposal has one batch for every worker");
  Decision decision;
  decision.step = step;
  decision.reason = proposal.reason;
  decision.words = std::move(proposal.words);
  if (auto legal = as_legal(roster, proposal.batches)) {
    decision.batch_sizes = std::move(*legal);
  } else {
    std::vector<double> wished = proposal.batches;
    for (std::size_t k = 0; k < current.size(); ++k) {
      if (!std::isfinite(wished[k])) {
        wished[k] = static_cast<double>(current[k]);
      }
    }
    decision.batch_sizes = nearest_legal(roster, wished);
    decision.repaired = is_repair(roster, proposal.batches, decision.batch_sizes);
    if (decision.repaired) {
      decision.words += repair_words(roster, proposal.batches);
    }
  }
  decision.changed = !current.empty() && !std::ranges::equal(decision.batch_sizes, current);
  return decision;
}

// Policies whose laws take the time of a step for that of the batch that they decided on.
void bring_to(std::span<const std::int64_t> batch_sizes, std::vector<Reading>& readings) {
  for (std::size_t k = 0; k < readings.size(); ++k) {
    if (readings[k].valid && batch_sizes[k] > 0) {
      readings[k].seconds *= static_cast<double>(batch_sizes[k]) / static_cast<double>(readings[k].batch);
      readings[k].batch = batch_sizes[k];
    }
  }
}

Roster checked(Roster roster) {
  roster.validate();
  return roster;
}

// Ids may exceed what a number in a State holds exactly, so they are saved as text.
std::string id_text(const Roster& roster) {
  std::string text;
  for (const Worker& worker : roster.workers) {
    text += (text.empty() ? "" : " ") + std::to_string(worker.id);
  }
  return text;
}

void exchange_fixed(StateExchange& state, std::string_view name, const std::string& value) {
  std::string saved = value;
  state.field(name, saved);
  require(saved == value, "state field " + std::string(name), in_quotes(saved), in_quotes(value));
}

}  // namespace

// All that a controller's future depends on; the fields are listed once for both directions.
struct Controller::Snapshot {
  std::string policy_name;
  std::string workers;
  std::vector<double> batches;
  Decision decision;
  RateSchedule rate;
  Policy& policy;

  void exchange(StateExchange& state) {
    exchange_fixed(state, "policy", policy_name);
    exchange_fixed(state, "workers", workers);
    state.field("batch_sizes", batches);
    state.field("step", decision.step);
    state.field("learning_rate_factor", decision.learning_rate_factor);
    state.field("changed", decision.changed);
    state.field("repaired", decision.repaired);
    state.field("words", decision.words);
    exchange_reason(state, decision.reason);
    state.part("rate", rate);
    state.part("learned", policy);
  }
};

Controller::Controller(Roster roster, const ControllerOptions& options)
    : policy_name_(options.policy),
      roster_(checked(std::move(roster))),
      policy_(make_policy(policy_name_)),
      rate_(options.rate, roster_.global_batch / roster_.units_per_sample) {
  decision_ = legalise(roster_, policy_->start(roster_, {}), {}, 0);
  decision_.learning_rate_factor = rate_.factor(0);
}

const Decision& Controller::observe(const StepTelemetry& telemetry) {
  std::vector<Reading> readings = align(telemetry, roster_);
  if (roster_.units_per_sample > 1 && !policy_->reads_any_batch()) {
    bring_to(decision_.batch_sizes, readings);
  }
  Proposal proposal = policy_->observe(roster_, readings, decision_.batch_sizes);
  decision_ = legalise(roster_, std::move(proposal), decision_.batch_sizes, decision_.step + 1);
  decision_.learning_rate_factor = rate_.factor(decision_.step);
  return decision_;
}

const Decision& Controller::change_workers(std::vector<Worker> workers) {
  Roster roster = checked(
      {.workers = std::move(workers),
       .global_batch = roster_.global_batch,
       .units_per_sample = roster_.units_per_sample});
  const Succession succession(ids_of(roster_), roster);
  const std::vector<std::int64_t> current = succession.carry_over(decision_.batch_sizes, std::int64_t{0});
  // A copy learns of the change, so that a failure leaves ours as it was.
  auto policy = started_policy();
  restore_state(*policy, save_state(*policy_));
  Decision decision = legalise(roster, policy->start(roster, current), current, decision_.step);
  decision.learning_rate_factor = decision_.learning_rate_factor;
  // Nothing throws from here on.
  roster_ = std::move(roster);
  policy_ = std::move(policy);
  decision_ = std::move(decision);
  return decision_;
}

Curve Controller::curve(std::size_t place) const {
  const Curve known = policy_->curve(place);
  const auto batch = static_cast<double>(std::max<std::int64_t>(decision_.batch_sizes[place], 1));
  return known.scaled(1.0 / known.seconds(batch));
}

Controller::Snapshot Controller::take_snapshot(Policy& policy) const {
  return {
      .policy_name = policy_name_,
      .workers = id_text(roster_),
      .batches = {decision_.batch_sizes.begin(), decision_.batch_sizes.end()},
      .decision = decision_,
      .rate = rate_,
      .policy = policy};
}

State Controller::state() const {
  Snapshot snapshot = take_snapshot(*policy_);
  return save_state(snapshot);
}

void Controller::restore(const State& state) {
  auto policy = started_policy();
  Snapshot snapshot = take_snapshot(*policy);
  restore_state(snapshot, state);
  auto batch_sizes = as_legal(roster_, snapshot.batches);
  if (!batch_sizes) {
    throw std::invalid_argument("state field batch_sizes is not a split that the workers' bounds permit");
  }
  snapshot.decision.batch_sizes = std::move(*batch_sizes);
  policy_ = std::move(policy);
  rate_ = snapshot.rate;
  decision_ = std::move(snapshot.decision);
}

std::unique_ptr<Policy> Controller::started_policy() const {
  auto policy = make_policy(policy_name_);
  (void)policy->start(roster_, {});
  return policy;
}

}  // namespace isochron
