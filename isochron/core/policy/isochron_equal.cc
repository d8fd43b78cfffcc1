// The part of the policy that knows what splits take, and doubts gains: equal shares unless others are worth it.
#include <algorithm>
#include <cmath>

#include "isochron/core/policy/isochron.h"

namespace isochron {
namespace {

// Part of a step that another split would save if times were in proportion to batches, below which a split is nearly
// balanced. Beyond it a wrong doubt would cost more than a wrong move.
constexpr double kNearlyBalanced = 0.1;
// Times what equal shares seem to take: if they may take so much longer, one move that denies it is not believed.
constexpr double kMuchAtStake = 1.5;

}  // namespace
double IsochronPolicy::work_seconds(const Outlook& view, std::size_t place, std::int64_t batch) const {
  const Shape& shape = shape_of(tracks_[place]);
  const auto samples = static_cast<double>(batch);
  return batch == 0 ? 0.0 : view.scales[place] * (view.flat ? shape.without_slope(samples) : shape(samples));
}

double IsochronPolicy::step_seconds(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> batches) const {
  double longest = 0.0;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    longest = std::max(longest, roster.workers[k].offset_seconds + work_seconds(view, k, batches[k]));
  }
  return longest;
}

// James and Stein: of what K levels differ by that are known with variances v_k, the part (K - 1) / Q is chance,
// Q = sum (l_k - mean)^2 / v_k.
IsochronPolicy::Outlook IsochronPolicy::sober(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> equal) const {
  Outlook sober = view;
  sober.flat = true;
  std::vector<double> levels(equal.size(), 0.0);  // log time for an equal share
  double count = 0.0;
  double weights = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t k = 0; k < equal.size(); ++k) {
    const double seconds = roster.workers[k].offset_seconds + work_seconds(view, k, equal[k]);
    if (!tracks_[k].seen || seconds <= 0.0) {
      return sober;
    }
    levels[k] = std::log(seconds);
    const double weight = 1.0 / tracks_[k].scale.belief().variance;
    count += 1.0;
    weights += weight;
    sum += weight * levels[k];
    squares += weight * levels[k] * levels[k];
  }
  const double mean = sum / weights;
  const double surprise = squares - sum * mean;
  const double chance = surprise > count - 1.0 ? (count - 1.0) / surprise : 1.0;
  for (std::size_t k = 0; k < equal.size(); ++k) {
    sober.scales[k] *= std::exp(chance * (mean - levels[k]));
  }
  return sober;
}

std::vector<std::size_t> IsochronPolicy::likely_shapes(const Roster& roster, double tolerance) const {
  std::vector<const ShapeEvidence*> evidence;
  std::vector<const std::string*> kinds;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    evidence.push_back(&tracks_[k].evidence);
    kinds.push_back(&roster.workers[k].kind);
  }
  return choose_shapes(evidence, kinds, tolerance);
}

double IsochronPolicy::worst_equal_seconds(
    const Roster& roster,
    const Outlook& view,
    std::span<const std::int64_t> current,
    std::span<const std::int64_t> equal) const {
  const std::vector<std::size_t> shapes = likely_shapes(roster, kMostOfAMove);
  double longest = 0.0;
  for (std::size_t k = 0; k < current.size(); ++k) {
    if (current[k] > 0) {
      const Shape& shape = (*grid_)[shapes[k]];
      const double growth = shape(static_cast<double>(equal[k])) / shape(static_cast<double>(current[k]));
      longest = std::max(longest, roster.workers[k].offset_seconds + growth * work_seconds(view, k, current[k]));
    }
  }
  return longest;
}

void IsochronPolicy::prefer_equal(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> current, Choice& choice) const {
  double speed = 0.0;
  for (std::size_t k = 0; k < current.size(); ++k) {
    speed += current[k] == 0 ? 0.0 : static_cast<double>(current[k]) / work_seconds(view, k, current[k]);
  }
  const double best = static_cast<double>(roster.global_batch) / speed;
  if (choice.bet || best < (1.0 - kNearlyBalanced) * step_seconds(roster, view, current)) {
    return;
  }
  const std::vector<double> equal = equal_split(roster);
  choice.equal.assign(equal.begin(), equal.end());
  if (choice.equal == choice.batches) {
    return;
  }
  if (worst_equal_seconds(roster, view, current, choice.equal) >
      kMuchAtStake * step_seconds(roster, view, choice.equal)) {
    choice.equal.clear();
    return;
  }
  const Outlook careful = sober(roster, view, choice.equal);
  const double seconds = cost(roster, careful, choice.equal);
  choice.certain_gain = 1.0 - cost(roster, careful, choice.batches) / seconds;
  if (choice.certain_gain <= 0.0) {
    choice.doubted_gain = 1.0 - choice.seconds / cost(roster, view, choice.equal);
    choice.batches = choice.equal;
    choice.seconds = cost(roster, view, choice.equal);
  }
}

bool IsochronPolicy::gains(
    const Roster& roster,
    Outlook view,
    std::span<const std::int64_t> batches,
    std::span<const std::int64_t> equal) const {
  constexpr double kLeastGain = 1e-3;  // of a step
  view.flat = true;
  return cost(roster, view, batches) < (1.0 - kLeastGain) * cost(roster, view, equal);
}

bool IsochronPolicy::has_wandered(std::span<const std::int64_t> current, std::span<const std::int64_t> wished) const {
  const auto tells = [&](std::size_t k, std::int64_t batch) {
    return current[k] > 0 && batch > 0 &&
           ShapeEvidence::tells(
               static_cast<double>(current[k]), static_cast<double>(batch), tracks_[k].scale.belief().noise);
  };
  bool wandered = false;
  for (std::size_t k = 0; k < current.size(); ++k) {
    if (tracks_[k].seen) {
      wandered |= tells(k, anchor_[k]);
      if (tells(k, wished[k])) {
        return false;
      }
    }
  }
  return wandered && check_steps_ >= check_wait_;
}

}  // namespace isochron
