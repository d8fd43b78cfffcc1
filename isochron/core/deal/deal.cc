#include "isochron/core/deal/deal.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/deal/deal_problem.h"
#include "isochron/core/error.h"

namespace isochron {
namespace detail {
namespace {

// When samples are taken as divisible, the smallest part that counts is a mean sample's 1 / kParts.
constexpr std::int64_t kParts = std::int64_t{1} << 20;

std::int64_t whole_parts(double parts, std::int64_t most) {
  return parts < static_cast<double>(most) ? static_cast<std::int64_t>(parts) : most;
}

}  // namespace

// The allocator over parts of a sample of mean work: work counted so is the same for workers to whom a sample costs
// differently.
Levels level_works(const DealProblem& problem) {
  const auto samples = static_cast<std::int64_t>(problem.works.size());
  const std::int64_t parts = std::max<std::int64_t>(1, std::min(kParts, kMaxGlobalBatch / samples));
  const std::int64_t total = samples * parts;
  std::vector<Slot> slots(problem.slots.size());
  std::vector<double> part_works(slots.size());
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const DealSlot& given = problem.slots[k];
    part_works[k] = (problem.mean_work + given.work_per_sample) / static_cast<double>(parts);
    slots[k] = {
        .curve = given.curve.in_units_of(part_works[k]),
        .offset_seconds = given.offset_seconds,
        .max_batch = whole_parts(given.max_work / part_works[k], total)};
  }
  const bool holds = std::transform_reduce(slots.begin(), slots.end(), 0.0, std::plus<>(), [](const Slot& slot) {
                       return static_cast<double>(slot.max_batch);
                     }) >= static_cast<double>(total);
  if (!holds) {
    for (Slot& slot : slots) {
      slot.max_batch = total;
    }
  }
  const Allocation allocation = allocate(slots, total);
  Levels levels{.works = std::move(part_works), .seconds = allocation.seconds};
  for (std::size_t k = 0; k < slots.size(); ++k) {
    levels.works[k] *= static_cast<double>(allocation.batch_sizes[k]);
  }
  return levels;
}

}  // namespace detail

namespace {

void check_works(std::span<const double> works) {
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (!(works[i] >= 0.0 && works[i] <= kMostWork)) {
      refuse("work of sample " + std::to_string(i) + " of the step", works[i], "a finite number, 0 to 1e15");
    }
  }
}

void check_slots(std::span<const DealSlot> slots, std::int64_t samples) {
  if (slots.empty()) {
    throw std::invalid_argument("there is no worker to deal to; permitted: 1 or more");
  }
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const DealSlot& slot : slots) {
    require(
        slot.work_per_sample >= 0.0 && slot.work_per_sample <= kMostWork,
        "work per sample",
        slot.work_per_sample,
        "a finite number, 0 to 1e15");
    require(
        slot.offset_seconds >= 0.0 && std::isfinite(slot.offset_seconds),
        "offset seconds",
        slot.offset_seconds,
        "a finite number, 0 or more");
    require(slot.max_work > 0.0, "max work", slot.max_work, "above 0");
    require(
        slot.min_samples >= 0 && slot.max_samples >= slot.min_samples,
        "max samples",
        slot.max_samples,
        "at least min samples, " + std::to_string(slot.min_samples) + ", which are 0 or more");
    least += std::min(slot.min_samples, samples + 1);
    most += std::min(slot.max_samples, samples);
  }
  if (least > samples || most < samples) {
    throw std::invalid_argument(
        "the step has " + std::to_string(samples) + " samples; permitted: " + std::to_string(least) + " to " +
        std::to_string(most) + ", the sums of the workers' bounds");
  }
}

detail::DealProblem make_problem(std::span<const double> works, std::span<const DealSlot> slots) {
  detail::DealProblem problem{.slots = slots};
  problem.samples.resize(works.size());
  std::iota(problem.samples.begin(), problem.samples.end(), std::size_t{0});
  std::ranges::stable_sort(problem.samples, std::greater<>(), [&](std::size_t i) { return works[i]; });
  problem.works.reserve(works.size());
  std::ranges::transform(problem.samples, std::back_inserter(problem.works), [&](std::size_t i) { return works[i]; });
  problem.mean_work = std::accumulate(works.begin(), works.end(), 0.0) / static_cast<double>(works.size());
  if (problem.mean_work <= 0.0) {
    std::ranges::fill(problem.works, 1.0);  // samples that cost nothing are dealt by count
    problem.mean_work = 1.0;
  }
  return problem;
}

/// Adds the works of a worker's samples up; they come largest first.
class WorkSum {
 public:
  explicit WorkSum(Collation collation) : collation_(collation) {}

  void add(double work) {
    largest_ = std::max(largest_, work);
    sum_ += work;
    ++samples_;
  }
  [[nodiscard]] double total() const {
    return collation_ == Collation::kPacked ? sum_ : static_cast<double>(samples_) * largest_;
  }

 private:
  Collation collation_;
  double sum_ = 0.0;
  double largest_ = 0.0;
  std::int64_t samples_ = 0;
};

/// The longest sample is somebody's.
double longest_sample_seconds(const detail::DealProblem& problem) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < problem.slots.size(); ++k) {
    const DealSlot& slot = problem.slots[k];
    least = std::min(least, slot.offset_seconds + slot.curve.seconds(problem.work(k, 0)));
  }
  return least;
}

}  // namespace

Deal deal_by_cost(std::span<const double> works, std::span<const DealSlot> slots, Collation collation) {
  check_works(works);
  check_slots(slots, static_cast<std::int64_t>(works.size()));
  Deal deal{.takers = std::vector<std::size_t>(works.size()), .works = std::vector<double>(slots.size(), 0.0)};
  if (works.empty()) {
    return deal;
  }
  const detail::DealProblem problem = make_problem(works, slots);
  const detail::Levels levels = level_works(problem);
  deal.bound_seconds = std::max(levels.seconds, longest_sample_seconds(problem));
  const std::vector<std::size_t> takers = collation == Collation::kPacked
                                              ? search_packed(problem, deal_packed(problem, levels, deal.bound_seconds))
                                              : deal_padded(problem);
  std::vector<WorkSum> sums(slots.size(), WorkSum(collation));
  for (std::size_t place = 0; place < takers.size(); ++place) {
    deal.takers[problem.samples[place]] = takers[place];
    sums[takers[place]].add(problem.work(takers[place], place));
  }
  for (std::size_t k = 0; k < slots.size(); ++k) {
    deal.works[k] = sums[k].total();
    deal.seconds = std::max(deal.seconds, slots[k].offset_seconds + slots[k].curve.seconds(deal.works[k]));
    deal.fits = deal.fits && !problem.is_over(k, deal.works[k]);
  }
  return deal;
}

}  // namespace isochron
