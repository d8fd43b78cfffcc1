// What a sequence costs by its length L: L itself, or with attention L + L^2 / (6 width), which is what a transformer
// of that width computes for it; or a L + b L^2, where what the squares cost is learned from the times of steps. Pure.
#pragma once

#include <string>
#include <string_view>

namespace isochron {

struct LengthCost {
  double attention_width = 0.0;  // 0: linear
  bool learned = false;          // jobs learn what the squares cost; a simulation takes the width

  [[nodiscard]] double work(double length) const {
    return attention_width > 0.0 ? length + length * length / (6.0 * attention_width) : length;
  }
};

/// "linear", "attention" (learned; simulated with GPT-2's width, 768) or "attention:width=WIDTH". Throws
/// std::invalid_argument that names `option`, the value and what is permitted.
[[nodiscard]] LengthCost parse_length_cost(std::string_view option, const std::string& text);

}  // namespace isochron
