#include "isochron/core/sample/claims.h"

#include <algorithm>
#include <string>

#include "isochron/core/error.h"

namespace isochron {

void ClaimPool::open(std::int64_t end) {
  ISO_CHECK(
      end >= end_, "claims are opened up to " + std::to_string(end) + ", which is behind " + std::to_string(end_));
  end_ = end;
}

Interval ClaimPool::claim(WorkerId worker, std::int64_t most) {
  ISO_CHECK(most >= 1, "a claim of no samples");
  ISO_CHECK(!held_.contains(worker), "worker " + std::to_string(worker) + " holds a claim and asks for another");
  if (exhausted()) {
    return {.first = next_, .last = next_};
  }
  Interval taken;
  if (returned_.empty()) {
    taken = {.first = next_, .last = std::min(next_ + most, end_)};
    next_ = taken.last;
  } else {
    Interval& oldest = returned_.front();
    taken = {.first = oldest.first, .last = std::min(oldest.first + most, oldest.last)};
    oldest.first = taken.last;
    if (oldest.size() == 0) {
      returned_.pop_front();
    }
  }
  held_.emplace(worker, taken);
  return taken;
}

Interval ClaimPool::finish(WorkerId worker) {
  const auto found = held_.find(worker);
  ISO_CHECK(found != held_.end(), "worker " + std::to_string(worker) + " finished without a claim");
  const Interval used = found->second;
  held_.erase(found);
  return used;
}

void ClaimPool::give_back(WorkerId worker) {
  if (const auto found = held_.find(worker); found != held_.end()) {
    returned_.push_back(found->second);
    held_.erase(found);
  }
}

void ClaimPool::give_back(const Interval& positions) {
  ISO_CHECK(
      positions.first < positions.last && positions.last <= next_,
      "positions are given back that nobody can have claimed");
  returned_.push_back(positions);
}

void ClaimPool::hold(WorkerId worker, const Interval& positions) {
  ISO_CHECK(
      positions.first < positions.last && positions.last <= next_, "positions are held that nobody can have claimed");
  ISO_CHECK(held_.emplace(worker, positions).second, "worker " + std::to_string(worker) + " holds a claim already");
}

std::int64_t ClaimPool::left() const {
  std::int64_t left = end_ - next_;
  for (const Interval& interval : returned_) {
    left += interval.size();
  }
  return left;
}

}  // namespace isochron
