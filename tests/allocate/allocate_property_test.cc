#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "brute_force.h"
#include "generators.h"
#include "greedy.h"
#include "mip_oracle.h"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/allocate/allocate.h"

namespace isochron {
namespace {

// The same thousands of cases in every run, unless the environment says otherwise.
[[maybe_unused]] const int kConfigured = setenv("RC_PARAMS", "seed=20 max_success=3000", 0);

using reference::bottleneck;
using reference::BruteForce;

void check_against_brute_force(const Problem& problem) {
  const std::optional<double> best = BruteForce(problem.slots, problem.global_batch).best_seconds();
  RC_CLASSIFY(best.has_value());
  if (!best) {
    RC_ASSERT_THROWS_AS((void)allocate(problem.slots, problem.global_batch), std::invalid_argument);
    RC_ASSERT_THROWS_AS(check_feasible(problem.slots, problem.global_batch), std::invalid_argument);
    return;
  }
  check_feasible(problem.slots, problem.global_batch);
  const Allocation allocation = allocate(problem.slots, problem.global_batch);
  RC_ASSERT(allocation.seconds == *best);
  RC_ASSERT(bottleneck(problem.slots, allocation.batch_sizes) == *best);
}

void check_legal(const Problem& problem, const std::vector<std::int64_t>& batch_sizes) {
  RC_ASSERT(batch_sizes.size() == problem.slots.size());
  RC_ASSERT(std::accumulate(batch_sizes.begin(), batch_sizes.end(), std::int64_t{0}) == problem.global_batch);
  const std::int64_t smallest = std::ranges::min(problem.slots, {}, &Slot::granularity).granularity;
  std::int64_t uneven = 0;
  for (std::size_t k = 0; k < batch_sizes.size(); ++k) {
    const Slot& slot = problem.slots[k];
    RC_ASSERT(batch_sizes[k] >= slot.min_batch);
    RC_ASSERT(batch_sizes[k] <= slot.max_batch);
    const std::int64_t over = batch_sizes[k] % slot.granularity;
    if (over != 0) {
      RC_ASSERT(over == problem.global_batch % smallest);
      RC_ASSERT(slot.granularity == smallest);
      ++uneven;
    }
  }
  RC_ASSERT(uneven <= 1);
}

RC_GTEST_PROP(AllocatePropertyTest, IsOptimalForOneGranularity, ()) {
  check_against_brute_force(generators::problem(false));
}

RC_GTEST_PROP(AllocatePropertyTest, IsOptimalForGranularitiesThatDivideOneAnother, ()) {
  check_against_brute_force(generators::problem(true));
}

RC_GTEST_PROP(AllocatePropertyTest, SharesUnitsInTheOrderInWhichTheyAreFinished, ()) {
  const Problem problem = generators::large_problem();
  const std::vector<std::int64_t> expected = reference::greedy(problem.slots, problem.global_batch);
  RC_ASSERT(allocate(problem.slots, problem.global_batch).batch_sizes == expected);
}

RC_GTEST_PROP(AllocatePropertyTest, AgreesWithAMixedIntegerProgram, ()) {
  const Problem problem = generators::medium_problem();
  const std::optional<double> expected = reference::mip_seconds(problem.slots, problem.global_batch);
  RC_PRE(expected.has_value());
  // GLPK takes a number within 1e-5 of a whole one for whole, which moves T by as many samples' time.
  const double seconds = allocate(problem.slots, problem.global_batch).seconds;
  RC_ASSERT(std::abs(seconds - *expected) <= 1e-5 * *expected);
}

RC_GTEST_PROP(AllocatePropertyTest, KeepsTheSumTheBoundsAndTheGranularities, (bool mixed)) {
  const Problem problem = generators::problem(mixed);
  std::vector<std::int64_t> batch_sizes;
  try {
    batch_sizes = allocate(problem.slots, problem.global_batch).batch_sizes;
  } catch (const std::invalid_argument&) {
    RC_DISCARD("infeasible");
  }
  check_legal(problem, batch_sizes);
}

}  // namespace
}  // namespace isochron
