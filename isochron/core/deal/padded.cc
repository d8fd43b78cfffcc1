// The padded deal: the samples, sorted by work, cut into one run per worker.
//
// For an order of the workers and a time T, each takes as many of the longest samples left as it finishes within T:
// the run of worker k that begins with work w has floor(capacity_k(T) / (w + c_k)) samples. To take fewer would leave
// longer ones to the others, so the smallest T at which nothing is left is the best for this order; bisection finds it.
// The last worker would get what is left over then, which may be next to nothing, and what is learned from such a share
// is far from the ones to come. So the time that is left is divided: a cut may lie anywhere between the last place to
// which those before it get within T and the first from which those behind it do.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "isochron/core/deal/deal_problem.h"
#include "isochron/core/error.h"

namespace isochron::detail {
namespace {

constexpr std::size_t kAllOrders = 6;     // workers, up to which every order is tried
constexpr double kPrecision = 1e-12;      // relative, of a time
constexpr std::int64_t kTries = 100'000;  // of a worker in an order, in all

class PaddedDeal {
 public:
  explicit PaddedDeal(const DealProblem& problem)
      : problem_(problem),
        least_gain_(problem.slots.size() <= kAllOrders ? 1e-7 : 1e-4),
        room_(problem.slots.size()),
        ends_(problem.slots.size()) {}

  std::vector<std::size_t> solve() && {
    if (!try_orders()) {
      keep_work_bounds_ = false;
      ISO_CHECK(try_orders(), "a deal ran out of room in a feasible problem");
    }
    if (best_.size() > kAllOrders) {
      swap_neighbours();
    }
    return cut();
  }

 private:
  /// Finds a best order, if any at all keeps the bounds.
  bool try_orders() {
    seconds_ = 2.0 * all_on_slowest();
    std::vector<std::size_t> order = by_speed();
    bool found = improve(order);
    std::ranges::reverse(order);
    found = improve(order) || found;
    std::ranges::sort(order);
    if (order.size() <= kAllOrders) {
      do {
        found = improve(order) || found;
      } while (std::ranges::next_permutation(order).found);
    } else {
      std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t k) { return problem_.slots[k].max_work; });
      found = improve(order) || found;
    }
    return found;
  }

  /// Workers by the time that they take for all of it, fast ones first.
  [[nodiscard]] std::vector<std::size_t> by_speed() const {
    std::vector<double> seconds(problem_.slots.size());
    const double all = problem_.mean_work * static_cast<double>(problem_.works.size());
    for (std::size_t k = 0; k < seconds.size(); ++k) {
      seconds[k] = problem_.slots[k].offset_seconds + problem_.slots[k].curve.seconds(all);
    }
    std::vector<std::size_t> order(seconds.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return seconds[a] < seconds[b]; });
    return order;
  }

  [[nodiscard]] double all_on_slowest() const {
    double longest = std::numeric_limits<double>::min();
    for (std::size_t k = 0; k < problem_.slots.size(); ++k) {
      const double work = static_cast<double>(problem_.works.size()) * problem_.work(k, 0);
      longest = std::max(longest, problem_.slots[k].offset_seconds + problem_.slots[k].curve.seconds(work));
    }
    return longest;
  }

  /// What everybody may do within T, whatever the order.
  void set_time(double seconds) {
    for (std::size_t k = 0; k < room_.size(); ++k) {
      const DealSlot& slot = problem_.slots[k];
      const double left = seconds - slot.offset_seconds;
      room_[k] = left < 0.0 ? -1.0 : slot.curve.capacity(left);
      if (keep_work_bounds_) {
        room_[k] = std::min(room_[k], slot.max_work * (1.0 + DealProblem::kRounding));
      }
    }
  }

  /// Whether nothing is left; `ends_` are the ends of the runs, in the order given.
  bool fill(const std::vector<std::size_t>& order) {
    const auto samples = std::ssize(problem_.works);
    std::int64_t needed = sum_of_least();
    std::int64_t at = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (room_[order[i]] < 0.0) {
        return false;
      }
      const DealSlot& slot = problem_.slots[order[i]];
      needed -= slot.min_samples;
      const std::int64_t most = std::min(slot.max_samples, samples - at - needed);
      const std::int64_t taken = std::min(most, within(order[i], at, most));
      if (taken < slot.min_samples) {
        return false;
      }
      at += taken;
      ends_[i] = at;
    }
    return at == samples;
  }

  /// How many samples of a run that begins at `at` the worker has room for, up to `most`.
  [[nodiscard]] std::int64_t within(std::size_t k, std::int64_t at, std::int64_t most) const {
    if (most <= 0) {
      return 0;
    }
    const double samples = room_[k] / problem_.work(k, static_cast<std::size_t>(at));
    return samples < static_cast<double>(most) ? static_cast<std::int64_t>(samples * (1.0 + kRoundingUp)) : most;
  }

  /// Takes the order if it is better than the best one.
  bool improve(const std::vector<std::size_t>& order) {
    double high = seconds_ * (1.0 - least_gain_);
    set_time(high);
    if (!fill(order)) {
      return false;
    }
    double low = high;
    for (double stride = least_gain_; low == high && low > 0.0; stride *= 4.0) {  // gains are small, but for the first
      low = std::max(0.0, high * (1.0 - stride));
      set_time(low);
      high = fill(order) ? low : high;
    }
    best_ = order;
    seconds_ = bisect(low, high, least_gain_);
    return true;
  }

  /// The least time between `low`, which is too little for the best order, and `high`, which is not.
  double bisect(double low, double high, double precision) {
    while (high - low > precision * high) {
      const double middle = low + (high - low) / 2.0;
      set_time(middle);
      (fill(best_) ? high : low) = middle;
    }
    return high;
  }

  void swap_neighbours() {
    std::int64_t tries = kTries / std::ssize(best_);
    bool better = true;
    while (better && tries > 0) {
      better = false;
      for (std::size_t i = 0; i + 1 < best_.size() && tries > 0; ++i, --tries) {
        std::vector<std::size_t> order = best_;
        std::swap(order[i], order[i + 1]);
        better = improve(order) || better;
      }
    }
  }

  std::vector<std::size_t> cut() {
    set_time(bisect(seconds_ * (1.0 - least_gain_), seconds_, kPrecision));
    ISO_CHECK(fill(best_), "a deal ran out of room in a feasible problem");
    divide_slack();
    std::vector<std::size_t> takers(problem_.works.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < best_.size(); ++i) {
      for (; at < static_cast<std::size_t>(ends_[i]); ++at) {
        takers[at] = best_[i];
      }
    }
    return takers;
  }

  /// Moves the ends of the runs of the best order forward, so that everybody has about the same part of T left.
  void divide_slack() {
    const std::vector<std::int64_t> earliest = earliest_ends();
    const std::vector<double> done = parts_done();
    const auto samples = std::ssize(problem_.works);
    std::int64_t needed = sum_of_least();
    std::int64_t at = 0;
    for (std::size_t i = 0; i < best_.size(); ++i) {
      const DealSlot& slot = problem_.slots[best_[i]];
      needed -= slot.min_samples;
      const auto slack = static_cast<double>(ends_[i] - earliest[i]);
      const std::int64_t wished = ends_[i] - static_cast<std::int64_t>(std::llround(slack * done[i]));
      const std::int64_t most = std::min(slot.max_samples, samples - at - needed);
      const std::int64_t within_time = at + std::min(most, within(best_[i], at, most));
      at = std::max(std::min(wished, within_time), at + slot.min_samples);
      ends_[i] = at;
    }
    ISO_CHECK(at == samples, "a deal left samples over");
  }

  /// By place in the best order: the least end of its run from which those behind it manage the rest.
  [[nodiscard]] std::vector<std::int64_t> earliest_ends() const {
    std::vector<std::int64_t> earliest(best_.size());
    std::int64_t end = std::ssize(problem_.works);
    std::int64_t needed = 0;  // by those behind
    for (std::size_t i = best_.size(); i-- > 0;) {
      earliest[i] = end;
      const DealSlot& slot = problem_.slots[best_[i]];
      // The run may begin at any place from which it gets to `end`: the further on, the shorter its samples.
      std::int64_t low = std::max<std::int64_t>(0, end - std::min(slot.max_samples, end));
      std::int64_t high = i == 0 ? 0 : ends_[i - 1];
      while (low < high) {
        const std::int64_t begin = low + (high - low) / 2;
        const std::int64_t taken = within(best_[i], begin, std::ssize(problem_.works) - begin - needed);
        if (begin + taken >= end && taken >= slot.min_samples) {
          high = begin;
        } else {
          low = begin + 1;
        }
      }
      end = high;
      needed += slot.min_samples;
    }
    return earliest;
  }

  /// By place in the best order: how much of all work it and those before it have.
  [[nodiscard]] std::vector<double> parts_done() const {
    std::vector<double> done;
    double sum = 0.0;
    std::size_t at = 0;
    for (const std::int64_t end : ends_) {
      for (; at < static_cast<std::size_t>(end); ++at) {
        sum += problem_.works[at];
      }
      done.push_back(sum);
    }
    for (double& part : done) {
      part /= sum;
    }
    return done;
  }

  [[nodiscard]] std::int64_t sum_of_least() const {
    std::int64_t sum = 0;
    for (const DealSlot& slot : problem_.slots) {
      sum += slot.min_samples;
    }
    return sum;
  }

  static constexpr double kRoundingUp = 4e-16;

  const DealProblem& problem_;
  double least_gain_;  // relative: an order that gains less is not looked for
  std::vector<double> room_;
  std::vector<std::int64_t> ends_;
  std::vector<std::size_t> best_;
  double seconds_ = 0.0;
  bool keep_work_bounds_ = true;
};

}  // namespace

std::vector<std::size_t> deal_padded(const DealProblem& problem) {
  return PaddedDeal(problem).solve();
}

}  // namespace isochron::detail
