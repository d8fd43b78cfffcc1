// The packed deal: by room below the level, longest sample first, then exchanges with the worker that finishes last.
#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "isochron/core/deal/deal_problem.h"
#include "isochron/core/error.h"

namespace isochron::detail {
namespace {

constexpr double kNearBound = 2e-4;        // relative to the bound: nothing more is worth a search
constexpr std::size_t kFirstPartners = 8;  // those who finish first are asked first

class PackedDeal {
 public:
  PackedDeal(const DealProblem& problem, const Levels& levels, double enough)
      : problem_(problem), levels_(levels), enough_(enough * (1.0 + kNearBound)), hands_(problem.slots.size()) {}

  std::vector<std::size_t> solve() && {
    hand_out();
    exchange();
    std::vector<std::size_t> takers(problem_.works.size());
    for (std::size_t k = 0; k < hands_.size(); ++k) {
      for (const std::size_t place : hands_[k].places) {
        takers[place] = k;
      }
    }
    return takers;
  }

 private:
  struct Hand {
    std::vector<std::size_t> places;  // increasing, so works decrease
    double work = 0.0;
    double seconds = 0.0;
  };

  /// Sample `give` of the giver for sample `take` of the taker, or for nothing.
  struct Exchange {
    std::size_t taker = 0;
    std::size_t give = 0;  // place among the samples
    std::optional<std::size_t> take;
    double seconds = 0.0;  // the later of the two afterwards
  };

  [[nodiscard]] std::int64_t count(std::size_t k) const { return std::ssize(hands_[k].places); }

  void put(std::size_t k, std::size_t place) {
    Hand& hand = hands_[k];
    hand.places.insert(std::ranges::lower_bound(hand.places, place), place);
    hand.work += problem_.work(k, place);
    hand.seconds = problem_.seconds(k, hand.work);
  }

  void take_away(std::size_t k, std::size_t place) {
    Hand& hand = hands_[k];
    hand.places.erase(std::ranges::lower_bound(hand.places, place));
    hand.work = std::max(0.0, hand.work - problem_.work(k, place));
    hand.seconds = problem_.seconds(k, hand.work);
  }

  /// Longest first, each to the worker with the most room below its level; where it does not fit there, to the one that
  /// finishes it first. When those left are as many as the lower bounds still need, they go to who needs them.
  void hand_out() {
    struct Room {
      double work;
      std::size_t worker;
      bool operator<(const Room& other) const { return work != other.work ? work < other.work : worker > other.worker; }
    };
    std::priority_queue<Room> rooms;
    std::int64_t needed = 0;
    for (std::size_t k = 0; k < hands_.size(); ++k) {
      rooms.push({levels_.works[k], k});
      needed += problem_.slots[k].min_samples;
      hands_[k].seconds = problem_.seconds(k, 0.0);
    }
    const auto samples = std::ssize(problem_.works);
    for (std::size_t place = 0; place < problem_.works.size(); ++place) {
      const bool only_needy = samples - static_cast<std::int64_t>(place) <= needed;
      while (!rooms.empty() && !is_current(rooms.top().worker, rooms.top().work)) {
        rooms.pop();
      }
      const bool fits = !only_needy && !rooms.empty() &&
                        rooms.top().work * (1.0 + kRoomRounding) >= problem_.work(rooms.top().worker, place);
      const std::size_t k = fits ? rooms.top().worker : first_to_finish(place, only_needy);
      needed -= count(k) < problem_.slots[k].min_samples ? 1 : 0;
      put(k, place);
      if (count(k) < problem_.slots[k].max_samples) {
        rooms.push({levels_.works[k] - hands_[k].work, k});
      }
    }
  }

  [[nodiscard]] bool is_current(std::size_t k, double room) const {
    return room == levels_.works[k] - hands_[k].work && count(k) < problem_.slots[k].max_samples;
  }

  [[nodiscard]] std::size_t first_to_finish(std::size_t place, bool only_needy) const {
    std::size_t best = hands_.size();
    double least = 0.0;
    for (std::size_t k = 0; k < hands_.size(); ++k) {
      const std::int64_t most = only_needy ? problem_.slots[k].min_samples : problem_.slots[k].max_samples;
      if (count(k) >= most) {
        continue;
      }
      const double seconds = problem_.seconds(k, hands_[k].work + problem_.work(k, place));
      if (best == hands_.size() || seconds < least) {
        best = k;
        least = seconds;
      }
    }
    ISO_CHECK(best < hands_.size(), "a deal ran out of room in a feasible problem");
    return best;
  }

  /// While it helps: the worker that finishes last gives a sample away, or a longer one for a shorter one.
  void exchange() {
    const std::size_t most_rounds = 4 * (hands_.size() + problem_.works.size());
    for (std::size_t round = 0; round < most_rounds; ++round) {
      const std::size_t last = slowest();
      if (hands_[last].seconds <= enough_) {
        return;
      }
      const std::optional<Exchange> best = best_exchange(last);
      if (!best) {
        return;
      }
      take_away(last, best->give);
      if (best->take) {
        take_away(best->taker, *best->take);
        put(last, *best->take);
      }
      put(best->taker, best->give);
    }
  }

  [[nodiscard]] std::size_t slowest() const {
    return static_cast<std::size_t>(std::ranges::max_element(hands_, {}, &Hand::seconds) - hands_.begin());
  }

  [[nodiscard]] std::optional<Exchange> best_exchange(std::size_t giver) {
    partners_.clear();
    for (std::size_t k = 0; k < hands_.size(); ++k) {
      if (k != giver) {
        partners_.push_back({hands_[k].seconds, k});
      }
    }
    const std::size_t first = std::min(kFirstPartners, partners_.size());
    const auto middle = partners_.begin() + static_cast<std::ptrdiff_t>(first);
    std::ranges::partial_sort(partners_, middle);
    std::optional<Exchange> best;
    double permitted = hands_[giver].seconds * (1.0 - DealProblem::kLeastGain);
    for (std::size_t i = 0; i < partners_.size(); ++i) {
      if (i >= first && best) {
        break;
      }
      look_for_exchanges(giver, partners_[i].worker, permitted, best);
    }
    return best;
  }

  /// The exchanges with one taker that bring both nearest to one time: for every sample of the giver the sample of the
  /// taker, or none, that makes the work that changes hands about right.
  void look_for_exchanges(
      std::size_t giver, std::size_t taker, double& permitted, std::optional<Exchange>& best) const {
    const double wished = wished_transfer(giver, taker);
    if (!(wished > 0.0)) {
      return;
    }
    const std::vector<std::size_t>& theirs = hands_[taker].places;
    const auto consider = [&](std::size_t give, std::optional<std::size_t> take) {
      const double seconds = seconds_after(giver, taker, give, take);
      if (seconds < permitted) {
        permitted = seconds;
        best = {.taker = taker, .give = give, .take = take, .seconds = seconds};
      }
    };
    const std::vector<std::size_t>& ours = hands_[giver].places;
    if (count(giver) > problem_.slots[giver].min_samples && count(taker) < problem_.slots[taker].max_samples) {
      const auto after =
          std::ranges::partition_point(ours, [&](std::size_t place) { return problem_.work(taker, place) > wished; });
      if (after != ours.end()) {
        consider(*after, std::nullopt);
      }
      if (after != ours.begin()) {
        consider(*(after - 1), std::nullopt);
      }
    }
    for (const std::size_t give : ours) {
      const double given = problem_.works[give];
      if (given <= problem_.works[theirs.empty() ? give : theirs.back()]) {
        break;  // nobody there has a shorter one
      }
      // Their first sample that is not longer than this, and the one before it.
      const auto after = std::ranges::partition_point(
          theirs, [&](std::size_t place) { return problem_.works[place] > given - wished; });
      if (after != theirs.end()) {
        consider(give, *after);
      }
      if (after != theirs.begin() && problem_.works[*(after - 1)] < given) {
        consider(give, *(after - 1));
      }
    }
  }

  /// The work that would have to change hands for both to finish at once, by the slopes of their curves; out of who is
  /// above its bound, what is above it.
  [[nodiscard]] double wished_transfer(std::size_t giver, std::size_t taker) const {
    const Hand& from = hands_[giver];
    const Hand& to = hands_[taker];
    double wished = (from.seconds - to.seconds) / (slope(giver) + slope(taker));
    if (problem_.is_over(giver, from.work)) {
      wished = from.work - problem_.slots[giver].max_work;
    }
    return std::min(wished, problem_.slots[taker].max_work - to.work);
  }

  [[nodiscard]] double slope(std::size_t k) const {
    const Curve& curve = problem_.slots[k].curve;
    const double work = std::max(hands_[k].work, problem_.mean_work);
    return std::max((curve.seconds(work) - curve.seconds(0.5 * work)) / (0.5 * work), 1e-300);
  }

  [[nodiscard]] double seconds_after(
      std::size_t giver, std::size_t taker, std::size_t give, std::optional<std::size_t> take) const {
    double from = hands_[giver].work - problem_.work(giver, give);
    double to = hands_[taker].work + problem_.work(taker, give);
    if (take) {
      from += problem_.work(giver, *take);
      to -= problem_.work(taker, *take);
    }
    return std::max(problem_.seconds(giver, from), problem_.seconds(taker, to));
  }

  static constexpr double kRoomRounding = 1e-9;

  struct Partner {
    double seconds;
    std::size_t worker;
    auto operator<=>(const Partner&) const = default;
  };

  const DealProblem& problem_;
  const Levels& levels_;
  double enough_;
  std::vector<Hand> hands_;
  std::vector<Partner> partners_;
};

}  // namespace

std::vector<std::size_t> deal_packed(const DealProblem& problem, const Levels& levels, double enough) {
  return PackedDeal(problem, levels, enough).solve();
}

}  // namespace isochron::detail
