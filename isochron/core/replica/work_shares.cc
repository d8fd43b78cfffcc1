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

/// The mean of the works or of their squares; 1 where all are 0.
double mean_of(std::span<const float> works, bool squared) {
  double sum = 0.0;
  for (const float one : works) {
    const auto work = static_cast<double>(one);
    sum += squared ? work * work : work;
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

WorkShares::WorkShares(SampleWorks works)
    : works_(std::make_shared<const SampleWorks>(std::move(works))), dataset_size_(std::ssize(works_->works)) {
  works_->validate();
  take_means(works_->works);
}

WorkShares::WorkShares(const ArrivingWorks& works)
    : works_(std::make_shared<const SampleWorks>(
          SampleWorks{.works = {}, .collation = works.collation, .learns_squares = works.learns_squares})),
      dataset_size_(works.dataset_size) {
}

void WorkShares::take_means(std::span<const float> works) {
  mean_work_ = mean_of(works, /*squared=*/false);
  mean_square_ = mean_of(works, /*squared=*/true);
}

double WorkShares::work_of(double linear, double squares) const {
  return works_->learns_squares ? std::min(linear + per_square_ * mean_work_ * (squares / mean_square_), kMostWork)
                                : linear;
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
    const double units_per_work = kUnits / (mean_work_ * (1.0 + per_square_) + per_sample);
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
    take_means(works);
  }
  return deal_works(std::vector<double>(works.begin(), works.end()), first, controller, members);
}

WorkShares::Dealt WorkShares::deal_works(
    std::span<const double> works,
    std::int64_t first,
    const Controller& controller,
    std::span<const Worker> members) const {
  std::vector<double> costs;
  std::ranges::transform(works, std::back_inserter(costs), [&](double work) { return work_of(work, work * work); });
  const Deal deal = deal_by_cost(costs, slots(controller, members, std::ssize(works)), works_->collation);
  Dealt dealt{.positions = std::vector<std::int64_t>(works.size()), .shares = std::vector<Share>(members.size())};
  for (const std::size_t taker : deal.takers) {
    ++dealt.shares[taker].samples;
  }
  std::vector<std::size_t> next(members.size(), 0);
  for (std::size_t k = 1; k < next.size(); ++k) {
    next[k] = next[k - 1] + static_cast<std::size_t>(dealt.shares[k - 1].samples);
  }
  const bool packed = works_->collation == Collation::kPacked;
  for (std::size_t i = 0; i < works.size(); ++i) {
    Share& share = dealt.shares[deal.takers[i]];
    dealt.positions[next[deal.takers[i]]++] = first + static_cast<std::int64_t>(i);
    const auto samples = static_cast<double>(share.samples);
    share.padding += costs[i];  // their sum, for now
    share.linear = packed ? share.linear + works[i] : std::max(share.linear, samples * works[i]);
    share.squares =
        packed ? share.squares + works[i] * works[i] : std::max(share.squares, samples * works[i] * works[i]);
  }
  for (Share& share : dealt.shares) {
    share.work = work_of(share.linear, share.squares);
    share.padding = std::max(share.work - share.padding, 0.0);
  }
  return dealt;
}

std::int64_t WorkShares::units(const Worker& worker, const Share& share) const {
  if (share.samples == 0) {
    return 0;
  }
  const double per_sample = work_per_sample(worker);
  const double amount =
      (work_of(share.linear, share.squares) / mean_work_ + per_sample * static_cast<double>(share.samples)) /
      (1.0 + per_square_ + per_sample);
  return std::max<std::int64_t>(1, std::llround(std::min(amount, 1e12) * kUnits));
}

void WorkShares::learn(std::span<const Worker> workers, std::span<const Share> shares, const StepTelemetry& telemetry) {
  std::vector<Learned> present;
  for (std::size_t k = 0; k < workers.size(); ++k) {
    const auto known = std::ranges::find(learned_, workers[k].id, &Learned::worker);
    present.push_back(
        known == learned_.end() ? Learned{.worker = workers[k].id, .kind = workers[k].kind, .parts = {}} : *known);
    const double seconds = telemetry.workers[k].seconds;
    const Share& share = shares[k];
    if (share.linear > 0.0 && seconds >= kShortestStep && seconds <= kLongestStep) {
      const auto samples = static_cast<double>(share.samples);
      const double work = share.linear / mean_work_;
      const double squares = works_->learns_squares ? share.squares / mean_square_ : 0.0;
      CostParts& parts = present.back().parts;
      const CostRatios ratios{.per_sample = work_per_sample(workers[k]), .per_square = per_square_};
      if (parts.contradict(samples, work, seconds, squares, ratios)) {
        parts = {};
      }
      parts.add(samples, work, seconds, squares);
    }
  }
  learned_ = std::move(present);
  if (works_->learns_squares) {
    pool_squares();
  }
  pool_samples();
}

/// By the costs per sample as they are known: the two ratios are improved in turn, one after the other in every step.
void WorkShares::pool_squares() {
  std::vector<KnownParts> known;
  for (const Learned& one : learned_) {
    const auto ratio = ratios_.find(one.kind);
    known.push_back(
        {.parts = &one.parts,
         .ratios = {.per_sample = ratio == ratios_.end() ? 0.0 : ratio->second, .per_square = per_square_}});
  }
  per_square_ = pooled_square_ratio(known);
}

void WorkShares::pool_samples() {
  std::map<std::string, std::vector<const CostParts*>, std::less<>> kinds;
  for (const Learned& one : learned_) {
    kinds[one.kind].push_back(&one.parts);
  }
  ratios_.clear();
  for (const auto& [kind, workers] : kinds) {
    ratios_[kind] = pooled_ratio(workers, per_square_);
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
  if (arrive()) {
    state.field("mean_work", mean_work_);
    require(mean_work_ >= 0.0 && mean_work_ <= kMostWork, "state field mean_work", mean_work_, "0 to 1e15");
    state.field("mean_square", mean_square_);
    const bool known = mean_work_ > 0.0 ? mean_square_ > 0.0 : mean_square_ == 0.0;
    require(known && mean_square_ <= kMostWork * kMostWork, "state field mean_square", mean_square_, "0 to 1e30");
  }
  if (works_->learns_squares) {
    state.field("per_square", per_square_);
    require(per_square_ >= 0.0 && per_square_ <= 64.0, "state field per_square", per_square_, "0 to 64");
  }
  if (state.restoring()) {
    pool_samples();
  }
}

}  // namespace isochron
