#include "isochron/engine/buffer_copies.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace isochron {
namespace {

TEST(BufferCopiesTest, TakesBackTheStatisticsThatPyTorchChangesWithoutRaisingTheirVersion) {
  torch::nn::BatchNorm1d norm(4);
  const at::Tensor mean = norm->running_mean;
  BufferCopies copies(norm->buffers());
  for (int step = 0; step < 2; ++step) {  // the second from what the first left
    copies.take();
    const at::Tensor before = mean.clone();
    norm->forward(at::arange(32.0).view({8, 4}) + step);
    ASSERT_FALSE(mean.equal(before));
    EXPECT_TRUE(copies.before(mean).equal(before));
    EXPECT_TRUE(copies.before(norm->weight).is_same(norm->weight)) << "it is no buffer";
    const auto batches = norm->num_batches_tracked.item<std::int64_t>();
    EXPECT_EQ(copies.before(norm->num_batches_tracked).item<std::int64_t>(), batches - 1);
    copies.restore();
    EXPECT_TRUE(mean.equal(before)) << mean << before;
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), batches - 1);
    norm->forward(at::arange(32.0).view({8, 4}) + step);
  }
}

}  // namespace
}  // namespace isochron
