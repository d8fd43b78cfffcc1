#include "isochron/core/dispatch/layout.h"

#include <algorithm>

#include "isochron/core/error.h"

namespace isochron {
namespace {

std::size_t strip_of(std::vector<Strip>& strips, const ParameterSize& parameter) {
  const auto found = std::ranges::find_if(
      strips, [&](const Strip& strip) { return strip.group == parameter.group && strip.type == parameter.type; });
  if (found == strips.end()) {
    strips.push_back({.group = parameter.group, .type = parameter.type, .width = parameter.width});
    return strips.size() - 1;
  }
  return static_cast<std::size_t>(found - strips.begin());
}

// Server n holds the bytes from total n / servers on, rounded to whole numbers.
void cut(ParameterLayout& layout, int servers, std::int64_t chunk_bytes) {
  std::int64_t total = 0;
  for (const Strip& strip : layout.strips) {
    total += strip.bytes();
  }
  std::int64_t before = 0;  // bytes of the strips before
  for (std::size_t number = 0; number < layout.strips.size(); ++number) {
    const Strip& strip = layout.strips[number];
    const std::int64_t most = std::max<std::int64_t>(chunk_bytes / strip.width, 1);
    std::int64_t first = 0;
    for (int server = 0; server < servers; ++server) {
      const std::int64_t share_end = total * (server + 1) / servers;
      const std::int64_t end = std::clamp((share_end - before) / strip.width, first, strip.elements);
      while (first < end) {
        const std::int64_t last = end - first > most ? first + most : end;
        layout.chunks.push_back({.server = server, .strip = number, .first = first, .last = last});
        first = last;
      }
    }
    before += strip.bytes();
  }
}

}  // namespace

std::int64_t ParameterLayout::chunk_bytes(std::size_t chunk) const {
  return chunks[chunk].size() * strips[chunks[chunk].strip].width;
}

std::int64_t ParameterLayout::server_bytes(int server) const {
  std::int64_t bytes = 0;
  for (const std::size_t chunk : chunks_on(server)) {
    bytes += chunk_bytes(chunk);
  }
  return bytes;
}

std::vector<std::size_t> ParameterLayout::chunks_of(std::size_t slot) const {
  const ParameterSlot& at = slots[slot];
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].strip == at.strip && chunks[i].first < at.last && chunks[i].last > at.first) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

std::vector<std::size_t> ParameterLayout::chunks_on(int server) const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].server == server) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

ParameterLayout lay_out(std::span<const ParameterSize> parameters, int servers, std::int64_t chunk_bytes) {
  ISO_CHECK(servers >= 1 && chunk_bytes >= 1, "a layout without servers or with empty chunks");
  ParameterLayout layout;
  for (const ParameterSize& parameter : parameters) {
    const std::size_t number = strip_of(layout.strips, parameter);
    Strip& strip = layout.strips[number];
    layout.slots.push_back({.strip = number, .first = strip.elements, .last = strip.elements + parameter.elements});
    strip.elements += parameter.elements;
  }
  cut(layout, servers, chunk_bytes);
  return layout;
}

}  // namespace isochron
