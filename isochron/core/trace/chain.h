// Ties the lines of a run log together: each ends with a link, a hash of its own text and of the link before it.
//
// Whoever edits, removes, repeats or moves a line breaks the chain there, since no later link fits. A change of up to
// eight neighbouring bytes that keeps the length is always seen, any other with a chance of 1 - 2^-64. It shows damage
// and careless edits; it is no signature: whoever rewrites the whole file can compute it anew. O(length) per line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace isochron {

/// The link before the first line.
inline constexpr std::uint64_t kFirstLink = 0;

/// The link of `line`, a JSON object without its link, after `previous`.
[[nodiscard]] std::uint64_t next_link(std::uint64_t previous, std::string_view line);

/// `line` with `link` as its last field: {…,"chain":"0123456789abcdef"}.
[[nodiscard]] std::string with_link(std::string_view line, std::uint64_t link);

struct LinkedLine {
  std::string line;  // without its link
  std::uint64_t link = 0;
};

/// The parts of what with_link() made; nothing if `text` does not end like that.
[[nodiscard]] std::optional<LinkedLine> split_link(std::string_view text);

}  // namespace isochron
