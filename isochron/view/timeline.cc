#include "isochron/view/timeline.h"

#include <algorithm>
#include <utility>

namespace isochron::view {
namespace {

constexpr std::size_t kFewestBins = 128;
constexpr std::size_t kMostBins = 8192;
constexpr std::int64_t kMostAround = 16;
// Shares of the bins for what stays exact; the rest is left for what does not.
constexpr std::size_t kTailShare = 8;
constexpr std::size_t kStartShare = 16;
constexpr std::size_t kPinnedShare = 4;

}  // namespace

void Cell::merge(const Cell& other) {
  batch.merge(other.batch);
  compute.merge(other.compute);
  wait.merge(other.wait);
  exchange.merge(other.exchange);
  offset.merge(other.offset);
}

void Bin::merge(const Bin& next) {
  records += next.records;
  first_step = std::min(first_step, next.first_step);
  last_step = std::max(last_step, next.last_step);
  start = std::min(start, next.start);
  end = std::max(end, next.end);
  samples += next.samples;
  busy += next.busy;
  seconds.merge(next.seconds);
  rate.merge(next.rate);
  balance.merge(next.balance);
  utilization.merge(next.utilization);
  loss.merge(next.loss);
  cells.resize(std::max(cells.size(), next.cells.size()));
  for (std::size_t i = 0; i < next.cells.size(); ++i) {
    cells[i].merge(next.cells[i]);
  }
}

std::size_t Timeline::capacity() const {
  return std::clamp(cells_ / workers_, kFewestBins, kMostBins);
}

std::int64_t Timeline::start() const {
  return static_cast<std::int64_t>(capacity() / kStartShare);
}

std::int64_t Timeline::around() const {
  return std::min(kMostAround, static_cast<std::int64_t>(capacity() / 32));
}

void Timeline::add(Bin bin) {
  workers_ = std::max(workers_, bin.cells.size());
  bin.ordinal = records_++;
  bin.pinned = bin.ordinal < std::max(start(), pinned_until_);
  tail_.push_back(std::move(bin));
  while (tail_.size() > capacity() / kTailShare) {
    settle(std::move(tail_.front()));
    tail_.pop_front();
  }
  if (settled_.size() + tail_.size() > capacity()) {
    compact();
  }
}

void Timeline::pin_here() {
  pinned_until_ = records_ + around();
  for (Bin& bin : tail_) {
    bin.pinned = bin.pinned || bin.ordinal >= records_ - around();
  }
}

void Timeline::forget_from(std::int64_t step) {
  const auto forget = [step](auto& bins) {
    while (!bins.empty() && bins.back().first_step >= step) {
      bins.pop_back();
    }
    if (!bins.empty()) {
      bins.back().last_step = std::min(bins.back().last_step, step - 1);
    }
  };
  forget(tail_);
  if (tail_.empty()) {
    forget(settled_);
  }
}

std::vector<const Bin*> Timeline::bins() const {
  std::vector<const Bin*> all;
  all.reserve(settled_.size() + tail_.size());
  std::ranges::for_each(settled_, [&](const Bin& bin) { all.push_back(&bin); });
  std::ranges::for_each(tail_, [&](const Bin& bin) { all.push_back(&bin); });
  return all;
}

/// Either into the last settled bin or beside it.
void Timeline::settle(Bin bin) {
  if (!settled_.empty() && width_ > 1 && !bin.pinned && !settled_.back().pinned &&
      settled_.back().ordinal / width_ == bin.ordinal / width_) {
    settled_.back().merge(bin);
  } else {
    settled_.push_back(std::move(bin));
  }
}

/// The oldest give way, the start of the run aside.
void Timeline::unpin_all_but(std::size_t count) {
  auto excess = static_cast<std::size_t>(std::ranges::count(settled_, true, &Bin::pinned));
  for (Bin& bin : settled_) {
    if (excess <= count) {
      return;
    }
    if (bin.pinned && bin.ordinal >= start()) {
      --excess;
      bin.pinned = false;
    }
  }
}

void Timeline::compact() {
  const auto settle_anew = [this] {
    std::vector<Bin> old = std::exchange(settled_, {});
    std::ranges::for_each(old, [&](Bin& bin) { settle(std::move(bin)); });
  };
  unpin_all_but(capacity() / kPinnedShare);
  settle_anew();  // what gave way may be room enough
  while (settled_.size() + tail_.size() > capacity() / 4 * 3) {
    width_ *= 2;
    settle_anew();
  }
}

}  // namespace isochron::view
