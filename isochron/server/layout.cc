#include "isochron/server/layout.h"

#include <algorithm>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

std::int64_t element_bytes(const Strip& strip) {
  return static_cast<std::int64_t>(c10::elementSize(strip.type));
}

std::size_t strip_of(std::vector<Strip>& strips, std::size_t group, at::ScalarType type) {
  const auto found =
      std::ranges::find_if(strips, [&](const Strip& strip) { return strip.group == group && strip.type == type; });
  if (found != strips.end()) {
    return static_cast<std::size_t>(found - strips.begin());
  }
  strips.push_back({.group = group, .type = type});
  return strips.size() - 1;
}

void place(Layout& layout, const std::vector<std::vector<at::Tensor>>& groups) {
  std::size_t next = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group]) {
      const std::size_t parameter_number = next++;
      if (!parameter.requires_grad()) {
        continue;
      }
      const std::size_t number = strip_of(layout.strips, group, parameter.scalar_type());
      Strip& strip = layout.strips[number];
      layout.slots.push_back(
          {.parameter = parameter, .number = parameter_number, .strip = number, .first = strip.elements});
      strip.elements += parameter.numel();
    }
  }
}

// Server n holds the bytes from total n / servers on, rounded to elements.
void cut(Layout& layout, int servers, std::int64_t piece_bytes) {
  std::int64_t total = 0;
  for (const Strip& strip : layout.strips) {
    total += strip.elements * element_bytes(strip);
  }
  std::int64_t before = 0;  // bytes of the strips before
  for (std::size_t number = 0; number < layout.strips.size(); ++number) {
    const Strip& strip = layout.strips[number];
    const std::int64_t width = element_bytes(strip);
    const std::int64_t most = std::max<std::int64_t>(piece_bytes / width, 1);
    std::int64_t first = 0;
    for (int server = 0; server < servers; ++server) {
      const std::int64_t share_end = total * (server + 1) / servers;
      const std::int64_t end = std::clamp((share_end - before) / width, first, strip.elements);
      for (; first < end; first = std::min(first + most, end)) {
        layout.pieces.push_back(
            {.server = server, .strip = number, .first = first, .last = std::min(first + most, end)});
      }
    }
    before += strip.elements * width;
  }
}

}  // namespace

std::int64_t Layout::piece_bytes(std::size_t piece) const {
  return pieces[piece].size() * element_bytes(strips[pieces[piece].strip]);
}

std::int64_t Layout::server_bytes(int server) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].server == server ? piece_bytes(i) : 0;
  }
  return bytes;
}

std::vector<std::size_t> Layout::pieces_of(const Slot& slot) const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.strip == slot.strip && piece.first < slot.first + slot.parameter.numel() && piece.last > slot.first) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

Layout make_layout(const std::vector<std::vector<at::Tensor>>& groups, int servers, std::int64_t piece_bytes) {
  ISO_CHECK(servers >= 1 && piece_bytes >= 1, "a layout without servers or with empty pieces");
  Layout layout;
  place(layout, groups);
  cut(layout, servers, piece_bytes);
  return layout;
}

}  // namespace isochron::server
