#include "isochron/data/first_samples.h"

#include <memory>

#include "support.h"
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/data/synthetic_images.h"

namespace isochron::data {
namespace {

TEST(FirstSamplesTest, AreThoseOfTheWholeAndNoMore) {
  const std::shared_ptr<const Dataset> whole = synthetic_images({.samples = 20, .classes = 7});
  const auto few = first_samples(whole, 5);
  EXPECT_EQ(few->size(), 5);
  EXPECT_EQ(few->shape(), whole->shape());
  EXPECT_EQ(few->classes(), 7);
  for (std::int64_t i = 0; i < 5; ++i) {
    std::int64_t label = 0;
    std::int64_t same_label = 0;
    EXPECT_EQ(sample_of(*few, i, &label), sample_of(*whole, i, &same_label));
    EXPECT_EQ(label, same_label);
  }
  EXPECT_THROW(sample_of(*few, 5), InvariantError);
}

TEST(FirstSamplesTest, RefuseToBeNoneOrMoreThanThereAre) {
  const std::shared_ptr<const Dataset> whole = synthetic_images({.samples = 20});
  EXPECT_EQ(refusal([&] { first_samples(whole, 21); }), "number of samples is 21; permitted: 1 to 20");
  EXPECT_EQ(refusal([&] { first_samples(whole, 0); }), "number of samples is 0; permitted: 1 to 20");
  EXPECT_EQ(first_samples(whole, 20)->size(), 20);
}

}  // namespace
}  // namespace isochron::data
