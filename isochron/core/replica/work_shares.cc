#include "isochron/core/replica/work_shares.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr auto kUnits = static_cast<double>(WorkShares::kUnitsPerSample);

// In a short step the lower bounds may be more than there is.
std::vector<std::int64_t> least_samples(std::span<const Worker> members, std::int64_t samples) {
  std::vector<std::int64_t> least;
  std::ranges::transform(members, std::back_inserter(least), &Worker::min_batch);
  const std::int64_t sum = std::accumulate(least.begin(), least.end(), std::int64_t{0});
  return sum > samples ? isochron::deal(samples, least) : least;
}

/// 1 where all are 0.
double mean_of(std::span<const float> works) {
  double sum = 0.0;
  for (const float work : works) {
    sum += static_cast<double>(work);
  }
  return sum > 0.0 ? sum / static_cast<double>(works.size()) : 1.0;
}

}  // namespace

void SampleWorks::validate() const {
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto work = static_cast<double>(works[i]);
    if (!(work >= 0.0 && work <= kMostWork)) {
      refuse("work of sample " + std::to_string(i), work, "a finite number, 0 to 1e15");
    }
  }
}

WorkShares::WorkShares(std::shared_ptr<const SampleWorks> works) : works_(std::move(works)) {
}

WorkShares::WorkShares(SampleWorks works) : WorkShares(std::make_shared<const SampleWorks>(std::move(works))) {
  works_->validate();
  mean_work_ = mean_of(works_->works);
}

WorkShares WorkShares::of_stream(Collation collation) {
  return WorkShares(std::make_shared<const SampleWorks>(SampleWorks{.works = {}, .collation = collation}));
}

Worker WorkShares::in_units(Worker worker) {
  worker.min_batch = std::min<std::int64_t>(worker.min_batch, 1);
  worker.max_batch = worker.max_batch > kNoLimit / kUnitsPerSample ? kNoLimit : worker.max_batch * kUnitsPerSample;
  return worker;
}

std::vector<DealSlot> WorkShares::slots(
    const Controller& controller, std::span<const Worker> members, std::int64_t samples) const {
  const std::vector<std::int64_t> least = least_samples(members, samples);
  std::vector<DealSlot> slots(members.size());
  for (std::size_t k = 0; k < members.size(); ++k) {
    const double per_sample = work_per_sample(members[k]) * mean_work_;
    const double units_per_work = kUnits / (mean_work_ + per_sample);
    const std::int64_t permitted = controller.roster().workers[k].max_batch;
    const bool short_of_memory = permitted < in_units(members[k]).max_batch;
    slots[k] = {
        .curve = controller.curve(k).in_units_of(units_per_work),
        .work_per_sample = per_sample,
        .min_samples = least[k],
        .max_samples = members[k].max_batch,
        .max_work = short_of_memory ? static_cast<double>(permitted) / units_per_work
                                    : std::numeric_limits<double>::infinity()};
  }
  return slots;
}

WorkShares::Dealt WorkShares::deal(
    const Sampler& sampler,
    std::int64_t first,
    std::int64_t size,
    const Controller& controller,
    std::span<const Worker> members) const {
  std::vector<double> works;
  works.reserve(static_cast<std::size_t>(size));
  for (std::int64_t position = first; position < first + size; ++position) {
    works.push_back(static_cast<double>(works_->works[static_cast<std::size_t>(sampler.sample_at(position))]));
  }
  return deal_works(works, first, controller, members);
}

WorkShares::Dealt WorkShares::deal_arrived(
    std::span<const float> works, std::int64_t first, const Controller& controller, std::span<const Worker> members) {
  SampleWorks{.works = {works.begin(), works.end()}}.validate();
  if (mean_work_ == 0.0) {
    mean_work_ = mean_of(works);
  }
  return deal_works(std::vector<double>(works.begin(), works.end()), first, controller, members);
}

WorkShares::Dealt WorkShares::deal_works(
    std::span<const double> works,
    std::int64_t first,
    const Controller& controller,
    std::span<const Worker> members) const {
  const Deal deal = deal_by_cost(works, slots(controller, members, std::ssize(works)), works_->collation);
  Dealt dealt{.positions = std::vector<std::int64_t>(works.size()), .shares = std::vector<Share>(members.size())};
  for (const std::size_t taker : deal.takers) {
    ++dealt.shares[taker].samples;
  }
  std::vector<std::size_t> next(members.size(), 0);
  for (std::size_t k = 1; k < next.size(); ++k) {
    next[k] = next[k - 1] + static_cast<std::size_t>(dealt.shares[k - 1].samples);
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    Share& share = dealt.shares[deal.takers[i]];
    dealt.positions[next[deal.takers[i]]++] = first + static_cast<std::int64_t>(i);
    share.padding += works[i];  // their sum, for now
    share.work = works_->collation == Collation::kPacked
                     ? share.padding
                     : std::max(share.work, static_cast<double>(share.samples) * works[i]);
  }
  for (Share& share : dealt.shares) {
    share.padding = share.work - share.padding;
  }
  return dealt;
}

std::int64_t WorkShares::units(const Worker& worker, const Share& share) const {
  if (share.samples == 0) {
    return 0;
  }
  const double per_sample = work_per_sample(worker);
  const double amount =
      (share.work / mean_work_ + per_sample * static_cast<double>(share.samples)) / (1.0 + per_sample);
  return std::max<std::int64_t>(1, std::llround(std::min(amount, 1e12) * kUnits));
}

void WorkShares::learn(std::span<const Worker> workers, std::span<const Share> shares, const StepTelemetry& telemetry) {
  std::vector<Learned> present;
  for (std::size_t k = 0; k < workers.size(); ++k) {
    const auto known = std::ranges::find(learned_, workers[k].id, &Learned::worker);
    present.push_back(
        known == learned_.end() ? Learned{.worker = workers[k].id, .kind = workers[k].kind, .parts = {}} : *known);
    const double seconds = telemetry.workers[k].seconds;
    if (shares[k].work > 0.0 && seconds >= kShortestStep && seconds <= kLongestStep) {
      present.back().parts.add(static_cast<double>(shares[k].samples), shares[k].work / mean_work_, seconds);
    }
  }
  learned_ = std::move(present);
  pool();
}

void WorkShares::pool() {
  std::map<std::string, std::vector<const CostParts*>, std::less<>> kinds;
  for (const Learned& one : learned_) {
    kinds[one.kind].push_back(&one.parts);
  }
  ratios_.clear();
  for (const auto& [kind, workers] : kinds) {
    ratios_[kind] = pooled_ratio(workers);
  }
}

double WorkShares::work_per_sample(const Worker& worker) const {
  const auto found = ratios_.find(worker.kind);
  return found == ratios_.end() ? 0.0 : found->second;
}

void WorkShares::Learned::exchange(StateExchange& state) {
  state.field("worker", worker);
  state.field("kind", kind);
  state.part("parts", parts);
}

void WorkShares::exchange(StateExchange& state) {
  std::int64_t units = kUnitsPerSample;
  state.field("units_per_sample", units);
  require(units == kUnitsPerSample, "state field units_per_sample", units, std::to_string(kUnitsPerSample));
  state.parts("workers", learned_);
  if (dataset_size() == 0) {
    state.field("mean_work", mean_work_);
    require(mean_work_ >= 0.0 && mean_work_ <= kMostWork, "state field mean_work", mean_work_, "0 to 1e15");
  }
  if (state.restoring()) {
    pool();
  }
}

}  // namespace isochron
