// Which part of the parameters lies on which server.
//
// All trained parameters are laid end to end in strips, one for every group of the optimizer and element type, since a
// piece has one learning rate and one type. Servers hold equal shares of the bytes, cut anywhere, also in the middle of
// a parameter: optimizers work element by element. A share is cut into pieces, the unit of every message and update, so
// that the exchange of one overlaps with the computing of the next. A pure function of the parameters' shapes:
// everybody computes the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace isochron::server {

struct Strip {
  std::size_t group = 0;  // of the optimizer
  at::ScalarType type = at::kFloat;
  std::int64_t elements = 0;
};

// Where a parameter lies.
struct Slot {
  at::Tensor parameter;
  std::size_t number = 0;  // of the parameter, over all groups
  std::size_t strip = 0;
  std::int64_t first = 0;  // element of the strip
};

struct Piece {
  int server = 0;
  std::size_t strip = 0;
  std::int64_t first = 0;  // elements of the strip
  std::int64_t last = 0;   // one past the end

  std::int64_t size() const { return last - first; }
};

struct Layout {
  std::vector<Strip> strips;
  std::vector<Slot> slots;    // in the order of the optimizer's parameters, those without gradients left out
  std::vector<Piece> pieces;  // in order, so that the pieces of a server are neighbours

  std::int64_t piece_bytes(std::size_t piece) const;
  std::int64_t server_bytes(int server) const;
  // Numbers of the pieces that hold some of the parameter.
  std::vector<std::size_t> pieces_of(const Slot& slot) const;
};

inline constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

// `groups`: the optimizer's parameters. Servers are numbered from 0; with more servers than elements some hold nothing.
Layout make_layout(
    const std::vector<std::vector<at::Tensor>>& groups, int servers, std::int64_t piece_bytes = kPieceBytes);

}  // namespace isochron::server
