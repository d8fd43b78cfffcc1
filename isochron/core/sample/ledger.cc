#include "isochron/core/sample/ledger.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>

#include "isochron/core/error.h"

namespace isochron {

void Use::exchange(StateExchange& state) {
  state.field("first", positions.first);
  state.field("last", positions.last);
  state.field("worker", worker);
}

Ledger::Ledger(std::int64_t size) : size_(size) {
  if (size < 0 || size > kMostPositions) {
    throw std::invalid_argument(
        "ledger size is " + std::to_string(size) + "; permitted: 0 to " + std::to_string(kMostPositions));
  }
}

void Ledger::stage(const Use& use) {
  const auto& [first, last] = use.positions;
  ISO_CHECK(
      first >= 0 && first <= last && last <= size_,
      "positions " + std::to_string(first) + " to " + std::to_string(last) + " are not in the epoch");
  staged_.push_back(use);
}

void Ledger::commit() {
  for (const Use& use : staged_) {
    record(use);
  }
  staged_.clear();
}

void Ledger::merge(const Ledger& other, WorkerId worker) {
  ISO_CHECK(size_ == other.size_, "ledgers of different epochs cannot be merged");
  for (const Interval& interval : other.intervals()) {
    record({.positions = interval, .worker = worker});
  }
  duplicates_.insert(duplicates_.end(), other.duplicates_.begin(), other.duplicates_.end());
}

// Takes out every interval that overlaps or touches the new one, and puts their union back.
void Ledger::record(const Use& use) {
  auto [first, last] = use.positions;
  if (first == last) {
    return;
  }
  used_ += last - first;
  auto next = last_by_first_.upper_bound(first);
  if (next != last_by_first_.begin() && std::prev(next)->second >= first) {
    --next;
  }
  const bool follows = next != last_by_first_.end() && next->second == first;
  if (follows && (std::next(next) == last_by_first_.end() || std::next(next)->first > last)) {
    next->second = last;  // nothing but a longer interval, as in a run that goes as it should
    return;
  }
  while (next != last_by_first_.end() && next->first <= last) {
    const Interval overlap{
        .first = std::max(next->first, use.positions.first), .last = std::min(next->second, use.positions.last)};
    if (overlap.size() > 0) {
      duplicates_.push_back({.positions = overlap, .worker = use.worker});
      used_ -= overlap.size();
    }
    first = std::min(first, next->first);
    last = std::max(last, next->second);
    next = last_by_first_.erase(next);
  }
  last_by_first_.emplace_hint(next, first, last);
}

std::vector<Interval> Ledger::intervals() const {
  std::vector<Interval> result;
  result.reserve(last_by_first_.size());
  for (const auto& [first, last] : last_by_first_) {
    result.push_back({.first = first, .last = last});
  }
  return result;
}

std::vector<Interval> Ledger::gaps() const {
  std::vector<Interval> result;
  std::int64_t covered = 0;
  for (const auto& [first, last] : last_by_first_) {
    if (first > covered) {
      result.push_back({.first = covered, .last = first});
    }
    covered = last;
  }
  if (covered < size_) {
    result.push_back({.first = covered, .last = size_});
  }
  return result;
}

void Ledger::exchange(StateExchange& state) {
  std::vector<std::int64_t> bounds;  // first, last, first, last, ...: strictly increasing
  for (const auto& [first, last] : last_by_first_) {
    bounds.insert(bounds.end(), {first, last});
  }
  state.field("size", size_);
  state.field("used", bounds);
  state.parts("duplicates", duplicates_);
  if (!state.restoring()) {
    return;
  }
  if (size_ < 0) {
    throw std::invalid_argument("state field size is " + std::to_string(size_) + "; permitted: 0 or more");
  }
  const bool increasing = std::ranges::adjacent_find(bounds, std::greater_equal<>{}) == bounds.end();
  if (!increasing || bounds.size() % 2 != 0 || (!bounds.empty() && (bounds.front() < 0 || bounds.back() > size_))) {
    throw std::invalid_argument("state field used is no list of intervals; permitted: increasing, within the epoch");
  }
  discard();
  last_by_first_.clear();
  used_ = 0;
  for (std::size_t i = 0; i < bounds.size(); i += 2) {
    last_by_first_.emplace(bounds[i], bounds[i + 1]);
    used_ += bounds[i + 1] - bounds[i];
  }
}

}  // namespace isochron
