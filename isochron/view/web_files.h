// The page's parts from web/, inside the program: cmake/embed.cmake writes their definitions.
#pragma once

#include <array>
#include <string_view>

namespace isochron::view {

extern const std::string_view kUplotScript;
extern const std::string_view kUplotStyle;
extern const std::string_view kUplotLicence;
extern const std::string_view kPageBody;
extern const std::string_view kPageStyle;
/// In the order in which they use one another.
extern const std::array<std::string_view, 6> kPageScripts;

}  // namespace isochron::view
