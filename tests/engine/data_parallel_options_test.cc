#include <cstdint>
#include <stdexcept>

#include <gtest/gtest.h>

#include "isochron/engine/data_parallel.h"

namespace isochron {
namespace {

TEST(DataParallelOptionsTest, NamesTheBucketSizeOutOfRange) {
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = 1023}.validate(), std::invalid_argument);
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = (std::int64_t{1} << 30) + 1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
