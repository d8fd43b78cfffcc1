#include <cstdint>
#include <stdexcept>

#include <gtest/gtest.h>

#include "isochron/engine/data_parallel.h"

namespace isochron {
namespace {

TEST(LossWeightTest, AveragesToOneAndRefusesNonsense) {
  double sum = 0;
  for (const std::int64_t batch : {5, 9, 17, 33}) {
    sum += loss_weight(batch, 64, 4);
  }
  EXPECT_DOUBLE_EQ(sum / 4, 1);
  EXPECT_DOUBLE_EQ(loss_weight(33, 64, 4), 33.0 * 4 / 64);
  EXPECT_DOUBLE_EQ(loss_weight(0, 64, 4), 0);
  EXPECT_THROW(loss_weight(65, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(-1, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(0, 0, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(1, 64, 0), std::invalid_argument);
}

TEST(DataParallelOptionsTest, NamesTheBucketSizeOutOfRange) {
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = 1023}.validate(), std::invalid_argument);
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = (std::int64_t{1} << 30) + 1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
