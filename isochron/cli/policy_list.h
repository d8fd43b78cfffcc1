// Several policies in one option: "uniform,omnilearn:dead-band=0.1,ewma=0.2,isochron".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isochron::cli {

/// The specifications in order. Commas separate policies and also the options inside one: a part that has an equals
/// sign and no colon before it belongs to the policy before.
[[nodiscard]] std::vector<std::string> split_policies(std::string_view text);

/// The same, each checked by making the policy; "oracle" is one too. Throws std::invalid_argument naming what is not
/// permitted.
[[nodiscard]] std::vector<std::string> parse_policies(std::string_view text);

}  // namespace isochron::cli
