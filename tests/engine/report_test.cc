#include "isochron/engine/report.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/replica/known_sizes.h"

namespace isochron {
namespace {

TEST(KnownSizesTest, TheFirstStepWithASizeTellsNothingOfAGpu) {
  KnownSizes of_gpu(false);
  EXPECT_FALSE(of_gpu.add(64));
  EXPECT_TRUE(of_gpu.add(64));
  EXPECT_FALSE(of_gpu.add(65));
  EXPECT_TRUE(of_gpu.add(64));
  KnownSizes of_cpu(true);
  EXPECT_TRUE(of_cpu.add(64));
}

TEST(ReportTest, APolicyDoesNotLearnFromAStepThatWasNotWarmButTheLogHasItsTime) {
  const std::vector<Worker> workers{{.id = 0, .name = "a"}, {.id = 1, .name = "b"}};
  const std::vector<Report> reports{{.batch = 8, .seconds = 2.0, .warm = 0}, {.batch = 8, .seconds = 1.0}};
  const StepTelemetry telemetry = make_telemetry(reports, workers, 3);
  EXPECT_TRUE(std::isnan(telemetry.workers[0].seconds));
  EXPECT_EQ(telemetry.workers[1].seconds, 1.0);
  const Decision decision{.step = 3, .batch_sizes = {8, 8}};
  EXPECT_EQ(make_record(reports, workers, decision, {}, 2.0, 2.5).workers[0].compute_seconds, 2.0);
}

}  // namespace
}  // namespace isochron
