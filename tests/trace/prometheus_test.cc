#include "isochron/core/trace/prometheus.h"

#include <fstream>
#include <iterator>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using testing::HasSubstr;
using testing::Not;

RunHeader two_exported_workers() {
  return {
      .program = "simulate",
      .version = "1",
      .policy = "isochron",
      .cluster = "a\\b\"c\nd",
      .workers = {{.id = 0, .name = "fast", .kind = "gpu"}, {.id = 1, .name = "slow", .kind = "cpu"}}};
}

StepRecord uneven_step() {
  return {
      .step = 6,
      .seconds = 4.0,
      .workers =
          {{.id = 0, .batch = 96, .compute_seconds = 2.0, .wait_seconds = 2.0},
           {.id = 1, .batch = 32, .compute_seconds = 4.0}},
      .changed = true};
}

TEST(PrometheusTest, DescribesTheLastStepAndTheTotals) {
  PrometheusMetrics metrics(two_exported_workers());
  metrics.observe(uneven_step());
  metrics.observe(uneven_step());
  const std::string text = metrics.text();
  EXPECT_THAT(
      text,
      HasSubstr(
          "# HELP isochron_step Number of the last finished step.\n# TYPE isochron_step gauge\nisochron_step 6\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_steps_total 2\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_samples_total 256\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_adjustments_total 2\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_samples_per_second 32\n"));  // 128 samples in 4 s
  EXPECT_THAT(text, HasSubstr("\nisochron_balance 0.75\n"));           // mean(2, 4) / 4
  EXPECT_THAT(text, HasSubstr("\nisochron_batch_size{worker=\"fast\",kind=\"gpu\"} 96\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_compute_seconds{worker=\"slow\",kind=\"cpu\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("\nisochron_wait_seconds{worker=\"fast\",kind=\"gpu\"} 2\n"));
}

// The dashboard in docs/grafana asks for what there is.
TEST(PrometheusTest, HasWhatTheDashboardShows) {
  std::ifstream stream(ISOCHRON_SOURCE_DIR "/docs/grafana/isochron.json");
  const std::string dashboard{std::istreambuf_iterator<char>(stream), {}};
  const std::string text = PrometheusMetrics(two_exported_workers()).text();
  const std::regex name("isochron_[a-z_]+");
  int names = 0;
  for (std::sregex_iterator found(dashboard.begin(), dashboard.end(), name), end; found != end; ++found, ++names) {
    EXPECT_THAT(text, HasSubstr("# TYPE " + found->str() + ' '));
  }
  EXPECT_GT(names, 10);
}

TEST(PrometheusTest, EscapesLabelValues) {
  EXPECT_THAT(PrometheusMetrics(two_exported_workers()).text(), HasSubstr(R"(cluster="a\\b\"c\nd"} 1)"));
}

TEST(PrometheusTest, HasWordsForWhatIsNotFinite) {
  PrometheusMetrics metrics(two_exported_workers());
  EXPECT_THAT(metrics.text(), HasSubstr("\nisochron_balance NaN\n"));
  metrics.observe(StepRecord{.seconds = std::numeric_limits<double>::infinity()});
  EXPECT_THAT(metrics.text(), HasSubstr("\nisochron_step_seconds +Inf\n"));
}

TEST(PrometheusTest, DropsAWorkerThatWasKilledAndNamesOneThatJoined) {
  PrometheusMetrics metrics(two_exported_workers());
  metrics.observe(uneven_step());
  metrics.observe(EventRecord{.event = "death", .worker = 1});
  metrics.observe(EventRecord{.event = "join", .worker = 8, .words = "late"});
  metrics.observe(StepRecord{.workers = {{.id = 8, .batch = 4}, {.id = 9, .batch = 5}}});
  EXPECT_THAT(metrics.text(), Not(HasSubstr("worker=\"slow\"")));
  EXPECT_THAT(metrics.text(), HasSubstr("isochron_batch_size{worker=\"late\"} 4\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("isochron_batch_size{worker=\"9\"} 5\n"));
}

}  // namespace
}  // namespace isochron
