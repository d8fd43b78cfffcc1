// The global batch that the ranks of these tests share unequally, and how far two sets of tensors are apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/ranks/group.h"
#include <gtest/gtest.h>
#include <mpi.h>
#include <torch/torch.h>

#include "isochron/core/replica/replica.h"
#include "isochron/engine/data_parallel.h"

namespace isochron::testing {

using Tensors = std::vector<at::Tensor>;

struct Samples {
  at::Tensor inputs;
  at::Tensor targets;

  Samples slice(std::int64_t first, std::int64_t count) const {
    return {inputs.narrow(0, first, count), targets.narrow(0, first, count)};
  }
};

// One batch size per rank.
using Split = std::vector<std::int64_t>;
inline const Split kUneven{5, 9, 17, 33};

inline std::int64_t total(const Split& split) {
  return std::accumulate(split.begin(), split.end(), std::int64_t{0});
}
inline std::int64_t my_batch(const Split& split) {
  return split.at(static_cast<std::size_t>(world_rank()));
}
inline std::int64_t my_first(const Split& split) {
  return std::accumulate(split.begin(), split.begin() + world_rank(), std::int64_t{0});
}
inline Samples my_share(const Samples& all, const Split& split = kUneven) {
  return all.slice(my_first(split), my_batch(split));
}
inline double my_weight(const Split& split = kUneven) {
  return loss_weight(my_batch(split), total(split), world_size());
}

// Largest difference of any tensor from the expected one, relative to that one's largest element.
inline double relative_error(const Tensors& tensors, const Tensors& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor wanted = expected[i].cpu().to(torch::kDouble);
    const at::Tensor off = (tensors.at(i).cpu().to(torch::kDouble) - wanted).abs().max() / wanted.abs().max();
    worst = std::max(worst, off.item<double>());
  }
  return worst;
}

inline Tensors gradients(const Tensors& parameters) {
  Tensors result;
  std::ranges::transform(parameters, std::back_inserter(result), [](const at::Tensor& p) { return p.grad(); });
  return result;
}

inline void expect_same_bits_everywhere(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor mine = tensor.detach().contiguous();
    at::Tensor of_rank_0 = mine.clone();
    MPI_Bcast(of_rank_0.data_ptr(), static_cast<int>(mine.nbytes()), MPI_BYTE, 0, MPI_COMM_WORLD);
    EXPECT_EQ(std::memcmp(mine.data_ptr(), of_rank_0.data_ptr(), mine.nbytes()), 0);
  }
}

}  // namespace isochron::testing
