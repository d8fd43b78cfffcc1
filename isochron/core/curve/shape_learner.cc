#include "isochron/core/curve/shape_learner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

namespace isochron {
namespace {

constexpr double kLeastMove = 0.1;         // |d log b| below which shapes cannot be told apart
constexpr double kLeastSignal = 3.0;       // the same, in standard deviations of log time
constexpr double kContradiction = 4.0;     // nats by which a worker must disagree with its kind
constexpr double kExpectedOverhead = 2.0;  // nats against none; more than the tolerance
constexpr double kRetention = 0.98;        // of old evidence, at every new move
constexpr double kPriorDoubt = 0.3;        // standard deviation of d log h / d log b before any evidence

/// Multiples of the typical batch: 0 is "none", the others cover two octaves on either side of it.
constexpr std::array<double, ShapeGrid::kSteps> kOverheads{0.0, 0.1, 0.25, 0.5, 1.0, 2.0};
constexpr std::array<double, ShapeGrid::kSteps> kPlateaus{0.0, 0.25, 0.5, 1.0, 2.0, 4.0};

}  // namespace

ShapeGrid::ShapeGrid(double typical_batch) {
  std::size_t index = 0;
  for (const double overhead : kOverheads) {
    for (const double plateau : kPlateaus) {
      shapes_.at(index++) = {.overhead = overhead * typical_batch, .plateau = plateau * typical_batch};
    }
  }
  std::ranges::stable_sort(
      shapes_, [](const Shape& a, const Shape& b) { return a.overhead + a.plateau < b.overhead + b.plateau; });
}

void ShapeEvidence::expect_overhead(const ShapeGrid& grid) {
  for (std::size_t i = 0; i < ShapeGrid::kSize; ++i) {
    misfit_[i] += grid[i].overhead == 0.0 ? kExpectedOverhead : 0.0;
  }
}

bool ShapeEvidence::tells(double before, double after, double noise) {
  return std::abs(std::log(after / before)) > std::max(kLeastMove, kLeastSignal * std::sqrt(noise));
}

bool ShapeEvidence::weigh(const ShapeGrid& grid, double before, double after, double log_time_change, double noise) {
  if (!tells(before, after, noise)) {
    return false;
  }
  // Two noisy times make a difference of variance 2 noise; the third part is for what the shapes leave out.
  const double variance = 3.0 * noise + 1e-5;
  for (std::size_t i = 0; i < ShapeGrid::kSize; ++i) {
    const double error = log_time_change - std::log(grid[i](after) / grid[i](before));
    // Bounded, so that one outlier cannot decide.
    misfit_[i] = kRetention * misfit_[i] + std::min(kMostOfAMove, error * error / variance / 2.0);
  }
  const double move = std::log(after / before);
  information_ += move * move / (2.0 * noise + 1e-4);
  return true;
}

double ShapeEvidence::doubt(double log_batch_change) const {
  constexpr double kPrior = kPriorDoubt * kPriorDoubt;
  return kPrior / (1.0 + information_ * kPrior) * log_batch_change * log_batch_change;
}

void ShapeEvidence::exchange(StateExchange& state) {
  std::vector<double> misfit(misfit_.begin(), misfit_.end());
  state.fixed_list("misfit", misfit);
  std::ranges::copy(misfit, misfit_.begin());
  state.field("information", information_);
}

std::size_t most_linear(std::span<const double> misfit, double tolerance) {
  const double limit = *std::ranges::min_element(misfit) + tolerance;
  return static_cast<std::size_t>(
      std::ranges::find_if(misfit, [limit](double nats) { return nats <= limit; }) - misfit.begin());
}

std::vector<std::size_t> choose_shapes(
    std::span<const ShapeEvidence* const> evidence, std::span<const std::string* const> kinds, double tolerance) {
  struct Pool {
    std::array<double, ShapeGrid::kSize> misfit{};
    std::size_t shape = 0;
  };
  std::map<std::string_view, Pool> pools;
  for (std::size_t k = 0; k < evidence.size(); ++k) {
    Pool& pool = pools[*kinds[k]];
    std::ranges::transform(pool.misfit, evidence[k]->misfit(), pool.misfit.begin(), std::plus<>());
  }
  for (auto& [kind, pool] : pools) {
    pool.shape = most_linear(pool.misfit, tolerance);
  }
  std::vector<std::size_t> chosen(evidence.size());
  for (std::size_t k = 0; k < evidence.size(); ++k) {
    const auto& own = evidence[k]->misfit();
    const std::size_t pooled = pools[*kinds[k]].shape;
    const bool contradicts = own[pooled] > *std::ranges::min_element(own) + kContradiction;
    chosen[k] = contradicts ? most_linear(own, tolerance) : pooled;
  }
  return chosen;
}

}  // namespace isochron
