// For few samples, where a single one is a large part of a share: branch and bound over all deals, longest first.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "isochron/core/deal/deal_problem.h"

namespace isochron::detail {
namespace {

constexpr std::size_t kMostSamples = 16;
constexpr std::int64_t kMostNodes = 20'000;  // about half a millisecond

class DealSearch {
 public:
  DealSearch(const DealProblem& problem, std::vector<std::size_t> takers)
      : problem_(problem),
        best_(std::move(takers)),
        takers_(best_.size()),
        works_(problem.slots.size(), 0.0),
        counts_(problem.slots.size(), 0) {
    std::vector<double> works(works_);
    for (std::size_t place = 0; place < best_.size(); ++place) {
      works[best_[place]] += problem_.work(best_[place], place);
    }
    for (std::size_t k = 0; k < works.size(); ++k) {
      seconds_ = std::max(seconds_, problem_.seconds(k, works[k]));
      idle_seconds_ = std::max(idle_seconds_, problem_.seconds(k, 0.0));
      needed_ += problem_.slots[k].min_samples;
    }
  }

  std::vector<std::size_t> solve() && {
    descend(0, idle_seconds_);
    return std::move(best_);
  }

 private:
  /// Tries all workers for the samples from `place` on; those before it make `seconds`.
  void descend(std::size_t place, double seconds) {
    if (place == takers_.size()) {
      best_ = takers_;
      seconds_ = seconds;
      return;
    }
    const auto left = std::ssize(takers_) - static_cast<std::int64_t>(place);
    for (std::size_t k = 0; k < works_.size() && nodes_ < kMostNodes; ++k) {
      const DealSlot& slot = problem_.slots[k];
      const bool needy = counts_[k] < slot.min_samples;
      const double work = works_[k] + problem_.work(k, place);
      const double later = std::max(seconds, problem_.seconds(k, work));
      if (counts_[k] >= slot.max_samples || (left <= needed_ && !needy) ||
          later >= seconds_ * (1.0 - DealProblem::kLeastGain)) {
        continue;
      }
      ++nodes_;
      const double before = works_[k];
      works_[k] = work;
      ++counts_[k];
      needed_ -= needy ? 1 : 0;
      takers_[place] = k;
      descend(place + 1, later);
      works_[k] = before;
      --counts_[k];
      needed_ += needy ? 1 : 0;
    }
  }

  const DealProblem& problem_;
  std::vector<std::size_t> best_;
  std::vector<std::size_t> takers_;
  std::vector<double> works_;
  std::vector<std::int64_t> counts_;
  std::int64_t needed_ = 0;  // samples, for the lower bounds
  std::int64_t nodes_ = 0;
  double seconds_ = 0.0;       // of the best
  double idle_seconds_ = 0.0;  // of nothing at all
};

}  // namespace

std::vector<std::size_t> search_packed(const DealProblem& problem, std::vector<std::size_t> takers) {
  return takers.size() <= kMostSamples ? DealSearch(problem, std::move(takers)).solve() : takers;
}

}  // namespace isochron::detail
