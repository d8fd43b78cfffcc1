#include "isochron/core/curve/shape_learner.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

TEST(ShapeTest, IsItsCurveUpToTheScale) {
  for (const Shape shape : {Shape{}, Shape{.overhead = 8.0}, Shape{.plateau = 100.0}, Shape{3.0, 50.0}}) {
    for (const double batch : {1.0, 7.0, 49.0, 50.0, 51.0, 1000.0}) {
      EXPECT_NEAR(shape.curve(0.5).seconds(batch), 0.5 * shape(batch), 1e-12 * shape(batch));
    }
  }
}

TEST(ShapeGridTest, BeginsWithTheLinearShape) {
  const ShapeGrid grid(32.0);
  EXPECT_EQ(grid[0], Shape{});
}

/// Moves a worker with the true `shape` back and forth and returns the shape that is chosen then.
Shape learned(const Shape& truth, double noise, int moves) {
  const ShapeGrid grid(32.0);
  ShapeEvidence evidence;
  Random random({5});
  double before = 32.0;
  for (int n = 0; n < moves; ++n) {
    const double after = n % 2 == 0 ? 100.0 : 12.0;
    const double change = std::log(truth(after) / truth(before)) + noise * random.normal();
    evidence.weigh(grid, before, after, change, std::max(noise * noise, 1e-6));
    before = after;
  }
  return grid[most_linear(evidence.misfit())];
}

TEST(ShapeEvidenceTest, FindsEachShapeOfTheGridFromAFewMoves) {
  EXPECT_EQ(learned({}, 0.02, 6), Shape{});
  EXPECT_EQ(learned({.overhead = 16.0}, 0.02, 6), (Shape{.overhead = 16.0}));
  EXPECT_EQ(learned({.plateau = 64.0}, 0.02, 6), (Shape{.plateau = 64.0}));
}

TEST(ShapeEvidenceTest, PrefersTheLinearShapeWhileNothingSpeaksAgainstIt) {
  EXPECT_EQ(learned({.overhead = 1.0}, 0.05, 1), Shape{});
}

TEST(ShapeEvidenceTest, LearnsNothingFromMovesThatDrownInNoise) {
  const ShapeGrid grid(32.0);
  ShapeEvidence evidence;
  EXPECT_FALSE(evidence.weigh(grid, 32.0, 33.0, 1.0, 1e-6));  // d log b = 0.03
  EXPECT_FALSE(evidence.weigh(grid, 32.0, 40.0, 1.0, 0.01));  // d log b = 0.22, three sigma = 0.3
  EXPECT_TRUE(evidence.weigh(grid, 32.0, 64.0, 1.0, 0.01));
}

TEST(ShapeEvidenceTest, DoubtsAMoveLessTheMoreItHasSeen) {
  const ShapeGrid grid(32.0);
  ShapeEvidence evidence;
  const double before = evidence.doubt(0.5);
  EXPECT_NEAR(before, 0.09 * 0.25, 1e-12);  // prior standard deviation 0.3 of the exponent, times the move, squared
  evidence.weigh(grid, 32.0, 64.0, std::log(2.0), 1e-4);
  EXPECT_LT(evidence.doubt(0.5), 0.1 * before);
}

TEST(ChooseShapesTest, PoolsPerKindAndLetsAContradictionStand) {
  const ShapeGrid grid(32.0);
  std::vector<ShapeEvidence> evidence(4);
  const Shape affine{.overhead = 32.0};
  // Workers 0 and 1 saw an affine curve, 2 of the same kind saw nothing, 3 of the same kind saw a linear one.
  for (int n = 0; n < 4; ++n) {
    for (const std::size_t k : {0U, 1U, 3U}) {
      const Shape truth = k == 3 ? Shape{} : affine;
      evidence[k].weigh(grid, 16.0, 64.0, std::log(truth(64.0) / truth(16.0)), 1e-4);
      evidence[k].weigh(grid, 64.0, 16.0, std::log(truth(16.0) / truth(64.0)), 1e-4);
    }
  }
  const std::string kind = "cpu";
  const std::string other = "gpu";
  const std::vector<const ShapeEvidence*> list{&evidence[0], &evidence[1], &evidence[2], &evidence[3], &evidence[2]};
  const std::vector<const std::string*> kinds{&kind, &kind, &kind, &kind, &other};
  const auto chosen = choose_shapes(list, kinds);
  EXPECT_EQ(grid[chosen[0]], affine);
  EXPECT_EQ(grid[chosen[2]], affine) << "what its kind has learned serves a worker that never moved";
  EXPECT_EQ(grid[chosen[3]], Shape{}) << "a worker that contradicts its kind keeps its own shape";
  EXPECT_EQ(grid[chosen[4]], Shape{}) << "another kind learns nothing from it";
}

}  // namespace
}  // namespace isochron
