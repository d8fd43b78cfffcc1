// How the learning rate changes over a run: constant, in steps, or along half a cosine, each after a linear warm-up.
//
// A pure function of the step, so a run that is resumed needs no state for it. It multiplies with the factor of rate.h,
// which answers to the batch. O(1).
#pragma once

#include <cstdint>

#include "isochron/core/names.h"

namespace isochron {

enum class Decay : std::uint8_t {
  kConstant,  // 1
  kStep,      // times step_factor after every step_every steps
  kCosine,    // (1 + cos(pi x)) / 2, x growing from 0 to 1 between warm-up and end  (Loshchilov and Hutter 2017)
};

inline constexpr Names<Decay, 3> kDecayNames{
    {{Decay::kConstant, "constant"}, {Decay::kStep, "step"}, {Decay::kCosine, "cosine"}}};

struct DecayOptions {
  Decay decay = Decay::kConstant;
  std::int64_t total_steps = 1;   // of the run, 1 or more
  std::int64_t warmup_steps = 0;  // rising linearly to 1, the last of them at 1; 0: none
  double step_factor = 0.1;       // kStep: above 0, at most 1
  std::int64_t step_every = 0;    // kStep: counted from the start of the run; 0: a third of it

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

/// For step `step`, counted from 0; past the end it is that of the end. The options must be valid.
[[nodiscard]] double decay_factor(const DecayOptions& options, std::int64_t step);

}  // namespace isochron
