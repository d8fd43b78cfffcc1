#include "isochron/core/deal/cost.h"

#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/options.h"

namespace isochron {

LengthCost parse_length_cost(std::string_view option, const std::string& text) {
  if (text == "linear") {
    return {};
  }
  Specification specification = Specification::parse(option, text);
  require(specification.name == "attention", option, in_quotes(text), "linear, attention, attention:width=WIDTH");
  LengthCost cost{.attention_width = 768.0, .learned = specification.options.empty()};
  OptionTable table(std::move(specification));
  table.number("width", cost.attention_width, 1.0, 1e9, "of the transformer");
  table.finish();
  return cost;
}

}  // namespace isochron
