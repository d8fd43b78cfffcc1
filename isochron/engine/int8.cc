#include "isochron/engine/int8.h"

#include <ATen/ATen.h>

namespace isochron {
namespace {

constexpr double kLargest = 127.0;
constexpr std::int64_t kStepBytes = 4;

}  // namespace

at::Tensor pack_int8(const at::Tensor& rows) {
  const at::Tensor blocks = rows.view({rows.size(0), -1, kInt8Block});
  const at::Tensor steps = (blocks.abs().amax(2) / kLargest).to(at::kFloat);
  const at::Tensor divisors = steps.to(rows.scalar_type()).unsqueeze(2);
  const at::Tensor numbers = at::where(divisors > 0, blocks / divisors, 0.0);
  numbers.round_().clamp_(-kLargest, kLargest).nan_to_num_(0.0);
  return at::cat({numbers.to(at::kChar).view(rows.sizes()).view(at::kByte), steps.view(at::kByte)}, 1);
}

at::Tensor unpack_int8(const at::Tensor& packed, at::ScalarType type) {
  const std::int64_t count = packed.size(1) * kInt8Block / (kInt8Block + kStepBytes);
  const at::Tensor numbers = packed.narrow(1, 0, count).contiguous().view(at::kChar).to(type);
  const at::Tensor steps = packed.narrow(1, count, packed.size(1) - count).contiguous().view(at::kFloat).to(type);
  return (numbers.view({packed.size(0), -1, kInt8Block}) * steps.unsqueeze(2)).view({packed.size(0), count});
}

}  // namespace isochron
