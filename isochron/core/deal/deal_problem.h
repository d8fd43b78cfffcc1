// What both ways to deal have in common: the samples in the order of their works, and when a worker finishes how much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/deal/deal.h"

namespace isochron::detail {

struct DealProblem {
  std::span<const DealSlot> slots;
  std::vector<double> works;         // largest first
  std::vector<std::size_t> samples;  // their numbers, in the same order; ties by number
  double mean_work = 0.0;

  /// What the sample at `place` costs worker `k`.
  [[nodiscard]] double work(std::size_t k, std::size_t place) const { return works[place] + slots[k].work_per_sample; }

  /// When the worker is finished. Above its bound on work every deal is worse than any deal within it, and the more the
  /// further above.
  [[nodiscard]] double seconds(std::size_t k, double work) const {
    const DealSlot& slot = slots[k];
    const double seconds = slot.offset_seconds + slot.curve.seconds(work);
    return is_over(k, work) ? seconds + kOver * (work / slot.max_work) : seconds;
  }
  [[nodiscard]] bool is_over(std::size_t k, double work) const { return work > slots[k].max_work * (1.0 + kRounding); }

  static constexpr double kOver = 1e12;       // seconds
  static constexpr double kLeastGain = 1e-9;  // relative: an exchange that gains less is none
  static constexpr double kRounding = 1e-12;  // of sums
};

/// The work each worker would have, and the time, if samples were divisible.
struct Levels {
  std::vector<double> works;
  double seconds = 0.0;
};
[[nodiscard]] Levels level_works(const DealProblem& problem);

/// By place in `problem.works`: who takes it.
[[nodiscard]] std::vector<std::size_t> deal_packed(const DealProblem& problem, const Levels& levels, double enough);
/// The same or better: the best deal of all, if there are few enough.
[[nodiscard]] std::vector<std::size_t> search_packed(const DealProblem& problem, std::vector<std::size_t> takers);
[[nodiscard]] std::vector<std::size_t> deal_padded(const DealProblem& problem);

}  // namespace isochron::detail
