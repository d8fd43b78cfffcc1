// Which part of the parameters lies on which server.
//
// All trained parameters are laid end to end in strips, one for every group of the optimizer and type of number, since
// a chunk has one learning rate and one type. Servers hold equal shares of the bytes, cut anywhere, also in the middle
// of a parameter: optimizers work number by number. A share is cut into chunks, the unit of every update, so that the
// exchange of one overlaps with the computing of the next. A pure function of the parameters' sizes: everybody computes
// the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace isochron {

/// A trained parameter, as far as it matters here.
struct ParameterSize {
  std::size_t group = 0;   // of the optimizer
  std::string type;        // of its numbers, as the framework names it
  std::int64_t width = 1;  // bytes of a number
  std::int64_t elements = 0;
};

struct Strip {
  std::size_t group = 0;
  std::string type;
  std::int64_t width = 1;
  std::int64_t elements = 0;

  [[nodiscard]] std::int64_t bytes() const { return width * elements; }
};

/// Where a parameter lies: elements of a strip.
struct ParameterSlot {
  std::size_t strip = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;  // one past the end

  [[nodiscard]] std::int64_t size() const { return last - first; }
};

struct Chunk {
  int server = 0;
  std::size_t strip = 0;
  std::int64_t first = 0;  // elements of the strip
  std::int64_t last = 0;

  [[nodiscard]] std::int64_t size() const { return last - first; }
};

struct ParameterLayout {
  std::vector<Strip> strips;
  std::vector<ParameterSlot> slots;  // in the order of the parameters
  std::vector<Chunk> chunks;         // in order, so that the chunks of a server are neighbours

  [[nodiscard]] std::int64_t chunk_bytes(std::size_t chunk) const;
  [[nodiscard]] std::int64_t server_bytes(int server) const;
  /// Numbers of the chunks that hold some of the slot, or lie on the server.
  [[nodiscard]] std::vector<std::size_t> chunks_of(std::size_t slot) const;
  [[nodiscard]] std::vector<std::size_t> chunks_on(int server) const;
};

inline constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;
/// A share is then one chunk of every strip that it touches.
inline constexpr std::int64_t kWholeShares = std::numeric_limits<std::int64_t>::max();

/// Servers are numbered from 0; with more servers than numbers some hold nothing. O(parameters x strips + chunks).
ParameterLayout lay_out(std::span<const ParameterSize> parameters, int servers, std::int64_t chunk_bytes = kChunkBytes);

}  // namespace isochron
