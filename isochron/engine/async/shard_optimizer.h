// The user's optimizer, again, for a part of the parameters.
#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace isochron {

// It has the class and the options of `group` of `original`, over `values` alone; it has learned nothing yet.
// `corrected_for_workers` above 0: with the momentum of SGD lowered by what that many asynchronous workers add to it
// (core/rate/rate.h). Throws std::invalid_argument for a class other than SGD, Adam and AdamW.
std::unique_ptr<torch::optim::Optimizer> shard_optimizer(
    const torch::optim::Optimizer& original,
    std::size_t group,
    const at::Tensor& values,
    std::int64_t corrected_for_workers);

}  // namespace isochron
