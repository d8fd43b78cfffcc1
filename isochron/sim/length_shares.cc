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
      learned_(lengths.cost.learned),
      works_(lengths.works(epoch_size(global_batch, steps), seed)),
      sampler_({.dataset_size = epoch_size(global_batch, steps), .global_batch = global_batch, .seed = seed}),
      work_(lengths.known_works(epoch_size(global_batch, steps), seed)) {
  const double sum = std::accumulate(works_.works.begin(), works_.works.end(), 0.0);
  mean_work_ = sum > 0.0 ? sum / static_cast<double>(works_.works.size()) : 1.0;
}

std::vector<double> LengthShares::coming_works() const {
  std::vector<double> works;
  const std::int64_t first = sampler_.state().position;
  for (std::int64_t position = first; position < first + sampler_.step_size(); ++position) {
    works.push_back(static_cast<double>(works_.works[static_cast<std::size_t>(sampler_.sample_at(position))]));
  }
  return works;
}

const std::vector<LengthShares::Share>& LengthShares::deal(
    const Splitter& splitter, const Fleet& fleet, const Decision& decision) {
  shares_.clear();
  if (!by_cost_) {
    deal_by_count(decision.batch_sizes);
  } else if (const Controller* const controller = splitter.controller()) {
    const std::vector<Worker> members = fleet.roster(false);
    WorkShares::Dealt dealt =
        work_.deal(sampler_, sampler_.state().position, sampler_.step_size(), *controller, members);
    std::span<const std::int64_t> positions = dealt.positions;
    for (const WorkShares::Share& share : dealt.shares) {
      const auto count = static_cast<std::size_t>(share.samples);
      const double work = learned_ ? true_work(positions.first(count)) : share.work;
      shares_.push_back({.samples = share.samples, .amount = work / mean_work_});
      positions = positions.subspan(count);
    }
    dealt_ = std::move(dealt.shares);
  } else {
    deal_for_oracle(fleet);
  }
  return shares_;
}

void LengthShares::deal_by_count(std::span<const std::int64_t> batch_sizes) {
  const std::vector<double> works = coming_works();
  std::size_t first = 0;
  for (const std::int64_t size : batch_sizes) {
    const auto count = static_cast<std::size_t>(size);
    shares_.push_back({.samples = size, .amount = total(std::span(works).subspan(first, count)) / mean_work_});
    first += count;
  }
}

void LengthShares::deal_for_oracle(const Fleet& fleet) {
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
  const Deal deal = deal_by_cost(coming_works(), slots, works_.collation);
  shares_.resize(slots.size());
  for (std::size_t k = 0; k < slots.size(); ++k) {
    shares_[k] = {.samples = std::ranges::count(deal.takers, k), .amount = deal.works[k] / mean_work_};
  }
}

double LengthShares::total(std::span<const double> works) const {
  if (works.empty()) {
    return 0.0;
  }
  return works_.collation == Collation::kPacked ? std::accumulate(works.begin(), works.end(), 0.0)
                                                : static_cast<double>(works.size()) * *std::ranges::max_element(works);
}

double LengthShares::true_work(std::span<const std::int64_t> positions) const {
  std::vector<double> works;
  for (const std::int64_t position : positions) {
    works.push_back(static_cast<double>(works_.works[static_cast<std::size_t>(sampler_.sample_at(position))]));
  }
  return total(works);
}

void LengthShares::finish(const Splitter& splitter, StepTelemetry& telemetry) {
  if (const Controller* const controller = splitter.controller(); by_cost_ && controller != nullptr) {
    const std::vector<Worker>& workers = controller->roster().workers;
    work_.learn(workers, dealt_, telemetry);
    for (std::size_t k = 0; k < workers.size(); ++k) {
      telemetry.workers[k].batch = work_.units(workers[k], dealt_[k]);
    }
  }
  sampler_.advance();
}

}  // namespace isochron::sim
