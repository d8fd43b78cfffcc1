// Text from outside, made safe to pass on.
#pragma once

#include <string>
#include <string_view>

namespace isochron {

/// `text` with every byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing
/// beyond U+10FFFF) replaced by U+FFFD.
std::string to_utf8(std::string_view text);

}  // namespace isochron
