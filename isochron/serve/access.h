// Who may look at a run. Pure functions over what a request says.
//
// On the loopback address everybody on the machine may look, but only under a name of that address: otherwise a web
// page elsewhere, whose name was made to point here, could read along through the user's browser. Anywhere else a token
// is asked for.
#pragma once

#include <cstddef>
#include <string_view>

namespace isochron::serve {

inline constexpr std::size_t kShortestToken = 16;

/// 127.0.0.0/8, ::1 or localhost.
[[nodiscard]] bool is_loopback(std::string_view host);

/// Whether a Host header, with or without a port, names the loopback address.
[[nodiscard]] bool names_loopback(std::string_view header);

/// Compares in a time that does not tell how much of `given` is right.
[[nodiscard]] bool same_token(std::string_view given, std::string_view expected);

}  // namespace isochron::serve
