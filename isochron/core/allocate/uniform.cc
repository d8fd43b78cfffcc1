#include "isochron/core/allocate/uniform.h"

#include <limits>

#include "isochron/core/allocate/level.h"
#include "isochron/core/error.h"

namespace isochron::detail {
namespace {

class UniformSplit {
 public:
  UniformSplit(std::span<const Slot> slots, std::int64_t total)
      : slots_(slots),
        granularity_(slots.front().granularity),
        remainder_(total % granularity_),
        need_(total / granularity_) {
    bounds_.reserve(slots.size());
    units_.resize(slots.size(), 0);
    for (const Slot& slot : slots) {
      bounds_.push_back(unit_bounds(slot, total));
      need_ -= bounds_.back().first;
    }
  }

  std::vector<std::int64_t> solve() && {
    fill_to_level();
    add_one_by_one();
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      units_[k] = (bounds_[k].first + units_[k]) * granularity_;
    }
    place_remainder();
    return std::move(units_);
  }

 private:
  struct NextUnit {
    double seconds;  // when it would be finished
    std::size_t worker;
    auto operator<=>(const NextUnit&) const = default;
  };

  [[nodiscard]] bool full(std::size_t k) const { return units_[k] == bounds_[k].more; }

  [[nodiscard]] double next_seconds(std::size_t k) const {
    return finish_seconds(slots_[k], (bounds_[k].first + units_[k] + 1) * granularity_);
  }

  /// Gives every worker all units it finishes within the level, or within a level a little lower if they are too
  /// many: either they are exactly enough, or the level is below the optimum and an optimal split has them all.
  void fill_to_level() {
    const LevelSearch search(slots_, bounds_, need_ * granularity_);
    double level = search.level();
    double step = std::max(level * 0x1p-48, std::numeric_limits<double>::min());
    while (!try_fill(search, level)) {
      level -= step;
      step *= 16.0;
    }
  }

  bool try_fill(const LevelSearch& search, double level) {
    left_ = need_;
    for (std::size_t k = 0; k < slots_.size() && left_ >= 0; ++k) {
      units_[k] = units_within(slots_[k], bounds_[k], level, search.guess_units(k, level));
      left_ -= units_[k];
    }
    return left_ >= 0;
  }

  /// The units still missing, each to the worker that finishes it first; a plateau counts as one block.
  void add_one_by_one() {
    std::vector<NextUnit> heap = first_to_finish();
    while (left_ > 0) {
      ISO_CHECK(!heap.empty(), "the allocator ran out of room in a feasible problem");
      std::ranges::pop_heap(heap, std::greater{});
      NextUnit& next = heap.back();
      const std::int64_t block = std::min(left_, block_size(next));
      units_[next.worker] += block;
      left_ -= block;
      if (full(next.worker)) {
        heap.pop_back();
      } else {
        next.seconds = next_seconds(next.worker);
        std::ranges::push_heap(heap, std::greater{});
      }
    }
  }

  /// The workers that may get one of the missing units, the first to finish on top: as many as there are units.
  [[nodiscard]] std::vector<NextUnit> first_to_finish() const {
    const auto most = static_cast<std::size_t>(left_);
    std::vector<NextUnit> heap;  // at first with the last to finish on top, to be driven out
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      if (full(k) || most == 0) {
        continue;
      }
      const NextUnit next{.seconds = next_seconds(k), .worker = k};
      if (heap.size() == most) {
        if (!(heap.front() > next)) {
          continue;
        }
        std::ranges::pop_heap(heap, std::less{});
        heap.pop_back();
      }
      heap.push_back(next);
      std::ranges::push_heap(heap, std::less{});
    }
    std::ranges::make_heap(heap, std::greater{});
    return heap;
  }

  /// How many units of the worker are finished at the same moment as its next one.
  [[nodiscard]] std::int64_t block_size(const NextUnit& next) const {
    const std::size_t k = next.worker;
    return units_within(slots_[k], bounds_[k], next.seconds, static_cast<double>(units_[k] + 1)) - units_[k];
  }

  // No unit moves for the remainder: the worker that could take a further unit first can take the smaller remainder
  // earlier still, so giving up a unit elsewhere never pays.
  void place_remainder() {
    if (remainder_ == 0) {
      return;
    }
    double best_seconds = kInfinity;
    std::size_t best = slots_.size();
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      if (!has_room(slots_[k], units_[k], remainder_)) {
        continue;
      }
      const double seconds = finish_seconds(slots_[k], units_[k] + remainder_);
      if (best == slots_.size() || seconds < best_seconds) {
        best_seconds = seconds;
        best = k;
      }
    }
    ISO_CHECK(best < slots_.size(), "the allocator has no room for the remainder in a feasible problem");
    units_[best] += remainder_;
  }

  std::span<const Slot> slots_;
  std::int64_t granularity_;
  std::int64_t remainder_;
  std::int64_t need_;  // units beyond the lower bounds
  std::int64_t left_ = 0;
  std::vector<UnitBounds> bounds_;
  std::vector<std::int64_t> units_;  // beyond the lower bounds
};

}  // namespace

bool uniform_feasible(std::span<const Slot> slots, std::int64_t total) {
  const std::int64_t granularity = slots.front().granularity;
  const std::int64_t remainder = total % granularity;
  const std::int64_t need = total / granularity;
  std::int64_t least = 0;
  std::int64_t most = 0;
  bool remainder_on_top = remainder == 0;  // with every worker at its upper bound
  for (const Slot& slot : slots) {
    const UnitBounds bounds = unit_bounds(slot, total);
    if (bounds.more < 0 || bounds.first > need - least) {
      return false;
    }
    least += bounds.first;
    most += bounds.first + bounds.more;
    remainder_on_top = remainder_on_top || has_room(slot, (bounds.first + bounds.more) * granularity, remainder);
  }
  return remainder_on_top ? most >= need : most > need;
}

std::vector<std::int64_t> split_uniform(std::span<const Slot> slots, std::int64_t total) {
  return UniformSplit(slots, total).solve();
}

}  // namespace isochron::detail
