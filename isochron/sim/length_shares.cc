#include "isochron/sim/length_shares.h"

#include <algorithm>
#include <numeric>

namespace isochron::sim {
namespace {

constexpr std::int64_t kMostWorks = 131'072;

std::int64_t epoch_size(std::int64_t global_batch, std::int64_t steps) {
  return global_batch * std::clamp<std::int64_t>(kMostWorks / global_batch, 1, steps);
}

}  // namespace

LengthShares::LengthShares(const Lengths& lengths, std::int64_t global_batch, std::int64_t steps, std::uint64_t seed)
    : by_cost_(lengths.by_cost),
      works_(lengths.works(epoch_size(global_batch, steps), seed)),
      known_(lengths.known_works(epoch_size(global_batch, steps), seed)),
      sampler_({.dataset_size = epoch_size(global_batch, steps), .global_batch = global_batch, .seed = seed}) {
  const double sum = std::accumulate(works_.works.begin(), works_.works.end(), 0.0);
  mean_work_ = sum > 0.0 ? sum / static_cast<double>(works_.works.size()) : 1.0;
}

void LengthShares::open(Replica& replica) const {
  if (by_cost_) {
    replica.open(known_);
  } else {
    replica.open_stream();
  }
}

void LengthShares::follow(const StepPlan& plan) {
  amounts_.clear();
  const std::int64_t before = plan.position - sampler_.state().position;  // a stream has one epoch
  for (const Interval& slice : plan.slices) {
    std::vector<std::int64_t> positions = plan.positions(slice);
    std::ranges::for_each(positions, [&](std::int64_t& position) { position -= before; });
    amounts_.push_back(total(works_at(positions)) / mean_work_);
  }
}

std::vector<std::int64_t> LengthShares::deal_for_oracle(const Fleet& fleet) {
  std::vector<Slot> truth;
  fleet.true_slots(truth);
  std::vector<DealSlot> slots;
  slots.reserve(truth.size());
  for (const Slot& slot : truth) {
    slots.push_back(
        {.curve = slot.curve.in_units_of(1.0 / mean_work_),
         .offset_seconds = slot.offset_seconds,
         .min_samples = slot.min_batch,
         .max_samples = slot.max_batch});
  }
  std::vector<std::int64_t> coming(static_cast<std::size_t>(sampler_.step_size()));
  std::iota(coming.begin(), coming.end(), sampler_.state().position);
  const Deal deal = deal_by_cost(works_at(coming), slots, works_.collation);
  std::vector<std::int64_t> samples;
  amounts_.clear();
  for (std::size_t k = 0; k < slots.size(); ++k) {
    samples.push_back(std::ranges::count(deal.takers, k));
    amounts_.push_back(deal.works[k] / mean_work_);
  }
  return samples;
}

std::vector<double> LengthShares::works_at(std::span<const std::int64_t> positions) const {
  std::vector<double> works;
  works.reserve(positions.size());
  for (const std::int64_t position : positions) {
    works.push_back(static_cast<double>(works_.works[static_cast<std::size_t>(sampler_.sample_at(position))]));
  }
  return works;
}

double LengthShares::total(std::span<const double> works) const {
  if (works.empty()) {
    return 0.0;
  }
  return works_.collation == Collation::kPacked ? std::accumulate(works.begin(), works.end(), 0.0)
                                                : static_cast<double>(works.size()) * *std::ranges::max_element(works);
}

}  // namespace isochron::sim
