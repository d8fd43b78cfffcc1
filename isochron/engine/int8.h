// Numbers as bytes: whole ones from -127 to 127 with a step for every block of 256, which is the block's largest number
// over 127. A number that comes back is off by half a step at most. Who has the same bytes gets the same numbers, bit
// by bit, on any device: each is one product. Costs a few passes over the numbers. Stateless.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace isochron {

inline constexpr std::int64_t kInt8Block = 256;

// Rows of a multiple of 256 numbers each. A block with a number that is not finite comes back without any that is.
at::Tensor pack_int8(const at::Tensor& rows);
at::Tensor unpack_int8(const at::Tensor& packed, at::ScalarType type);

}  // namespace isochron
