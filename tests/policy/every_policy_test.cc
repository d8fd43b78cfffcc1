// What every policy must keep, whatever happens: random rosters, changes and telemetry, each case from its own seed.
// New policies are covered as soon as they are registered.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/policy/support.h"
#include <gtest/gtest.h>

#include "isochron/core/policy/registry.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

// Makes a random life of a job; the same seed gives the same life.
class Scenario {
 public:
  explicit Scenario(std::uint64_t seed) : random_({0x706f'6c69'6379, seed}) {}

  Roster roster() {
    Roster roster{.workers = {}, .global_batch = 1 + below(300)};
    const std::int64_t count = 1 + below(6);
    for (std::int64_t k = 0; k < count; ++k) {
      roster.workers.push_back(newcomer());
    }
    return with_room(std::move(roster));
  }

  /// Somebody leaves, somebody joins, bounds change, the order changes.
  std::vector<Worker> changed(const Roster& before) {
    Roster roster = before;
    if (roster.workers.size() > 1 && below(2) == 0) {
      roster.workers.erase(roster.workers.begin() + below(static_cast<std::int64_t>(roster.workers.size())));
    }
    if (below(2) == 0) {
      roster.workers.push_back(newcomer());
    }
    if (below(3) == 0) {
      Worker& worker =
          roster.workers[static_cast<std::size_t>(below(static_cast<std::int64_t>(roster.workers.size())))];
      worker.max_batch = worker.min_batch + below(roster.global_batch + 1);
    }
    if (below(4) == 0) {
      std::ranges::reverse(roster.workers);
    }
    return with_room(std::move(roster)).workers;
  }

  StepTelemetry telemetry(const Decision& decision, const Roster& roster) {
    StepTelemetry telemetry{.step = decision.step, .workers = {}};
    const bool sane = below(3) != 0;
    for (std::size_t k = 0; k < roster.workers.size(); ++k) {
      WorkerTelemetry report;
      report.worker = roster.workers[k].id;
      report.batch = decision.batch_sizes[k];
      report.seconds = (1.0 + static_cast<double>(report.batch) * (1.0 + static_cast<double>(report.worker % 5))) *
                       std::exp(0.1 * random_.normal());
      report.usage.cpu = random_.uniform();
      report.usage.memory = random_.uniform();
      telemetry.workers.push_back(report);
      if (!sane) {
        spoil(telemetry);
      }
    }
    return telemetry;
  }

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound)));
  }

 private:
  Worker newcomer() {
    static const std::vector<std::string> kinds{"cpu", "gpu", "tpu"};
    Worker worker;
    // Some ids do not fit a floating-point number.
    worker.id = next_id_++ + (below(4) == 0 ? 0xfedc'ba98'7654'0000U : 0U);
    worker.kind = kinds[static_cast<std::size_t>(below(3))];
    worker.weight = below(5) == 0 ? 1e-3 : 1.0 + static_cast<double>(below(100));
    worker.granularity = std::int64_t{1} << below(4);
    worker.min_batch = below(2) == 0 ? below(20) : 0;
    worker.max_batch = below(2) == 0 ? worker.min_batch + worker.granularity + below(200) : kNoLimit;
    worker.offset_seconds = below(3) == 0 ? random_.uniform() : 0.0;
    return worker;
  }

  /// The roster, with its bounds loosened as far as a split needs it.
  static Roster with_room(Roster roster) {
    const auto fits = [&] { return error_of<std::invalid_argument>([&] { (void)equal_split(roster); }).empty(); };
    for (std::size_t k = 0; k < roster.workers.size() && !fits(); ++k) {
      roster.workers[k].min_batch = 0;
    }
    for (std::size_t k = 0; k < roster.workers.size() && !fits(); ++k) {
      roster.workers[k].max_batch = kNoLimit;
    }
    for (std::size_t k = 0; k < roster.workers.size() && !fits(); ++k) {
      roster.workers[k].granularity = 1;
    }
    return roster;
  }

  /// Makes the last report a lie, a stranger's or a twin, or drops it.
  void spoil(StepTelemetry& telemetry) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    static const std::vector<double> odd{0.0, -1.0, kUnknown, kInfinite, -kInfinite, 1e308, 5e-324, 1e-9, 1e9};
    WorkerTelemetry& report = telemetry.workers.back();
    const auto any = [&] { return odd[static_cast<std::size_t>(below(static_cast<std::int64_t>(odd.size())))]; };
    switch (below(7)) {
      case 0:
        report.seconds = any();
        break;
      case 1:
        report.batch = std::vector<std::int64_t>{-5, 0, 1, kNoLimit}[static_cast<std::size_t>(below(4))];
        break;
      case 2:
        report.usage.cpu = any();
        report.usage.memory = any();
        break;
      case 3:
        report.worker += 1000;
        break;
      case 4:
        telemetry.workers.push_back(telemetry.workers.front());
        break;
      case 5:
        telemetry.workers.pop_back();
        break;
      default:
        std::ranges::reverse(telemetry.workers);
    }
  }

  Random random_;
  WorkerId next_id_ = 1;
};

void expect_legal(const Decision& decision, const Roster& roster) {
  ASSERT_EQ(decision.batch_sizes.size(), roster.workers.size());
  const std::int64_t smallest = std::ranges::min(roster.workers, {}, &Worker::granularity).granularity;
  std::int64_t sum = 0;
  std::int64_t uneven = 0;
  for (std::size_t k = 0; k < roster.workers.size(); ++k) {
    const Worker& worker = roster.workers[k];
    const std::int64_t batch = decision.batch_sizes[k];
    sum += batch;
    EXPECT_GE(batch, worker.min_batch);
    EXPECT_LE(batch, worker.max_batch);
    if (batch % worker.granularity != 0) {
      ++uneven;
      EXPECT_EQ(worker.granularity, smallest);
      EXPECT_EQ(batch % worker.granularity, roster.global_batch % smallest);
    }
  }
  EXPECT_EQ(sum, roster.global_batch);
  EXPECT_LE(uneven, 1);
  EXPECT_EQ(decision.repaired, decision.words.find("repaired") != std::string::npos) << decision.words;
  EXPECT_TRUE(std::isfinite(decision.learning_rate_factor));
  EXPECT_GT(decision.learning_rate_factor, 0.0);
  EXPECT_FALSE(decision.words.empty());
}

bool same(const Decision& a, const Decision& b) {
  return a.step == b.step && a.batch_sizes == b.batch_sizes && a.learning_rate_factor == b.learning_rate_factor &&
         a.changed == b.changed && a.repaired == b.repaired && a.reason == b.reason && a.words == b.words;
}

constexpr std::uint64_t kScenarios = 60;
constexpr int kSteps = 40;

class EveryPolicyTest : public testing::TestWithParam<std::string> {
 protected:
  // Warming up and growing with B / reference, so that the factor changes from step to step.
  static ControllerOptions options() {
    return {.policy = GetParam(), .rate = {.rule = RateRule::kLegw, .reference_batch = 32, .warmup_steps = 10.0}};
  }
};

TEST_P(EveryPolicyTest, KeepsSumBoundsAndGranularitiesWhateverHappens) {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    SCOPED_TRACE(seed);
    Scenario scenario(seed);
    Controller controller(scenario.roster(), options());
    expect_legal(controller.decision(), controller.roster());
    for (int step = 0; step < kSteps; ++step) {
      if (scenario.below(8) == 0) {
        expect_legal(controller.change_workers(scenario.changed(controller.roster())), controller.roster());
      }
      const std::int64_t before = controller.decision().step;
      expect_legal(
          controller.observe(scenario.telemetry(controller.decision(), controller.roster())), controller.roster());
      EXPECT_EQ(controller.decision().step, before + 1);
      if (HasFailure()) {
        return;
      }
    }
  }
}

TEST_P(EveryPolicyTest, AnswersTheSameToTheSame) {
  for (std::uint64_t seed = 0; seed < kScenarios / 4; ++seed) {
    Scenario scenario(seed);
    const Roster roster = scenario.roster();
    Controller one(roster, options());
    Controller other(roster, options());
    for (int step = 0; step < kSteps; ++step) {
      if (scenario.below(8) == 0) {
        const std::vector<Worker> workers = scenario.changed(one.roster());
        EXPECT_TRUE(same(one.change_workers(workers), other.change_workers(workers)));
      }
      const StepTelemetry telemetry = scenario.telemetry(one.decision(), one.roster());
      ASSERT_TRUE(same(one.observe(telemetry), other.observe(telemetry))) << seed << " at " << step;
    }
  }
}

TEST_P(EveryPolicyTest, GoesOnIdenticallyFromASavedState) {
  for (std::uint64_t seed = 0; seed < kScenarios / 2; ++seed) {
    Scenario scenario(seed);
    Controller original(scenario.roster(), options());
    const std::int64_t saved_at = scenario.below(kSteps);
    for (std::int64_t step = 0; step < saved_at; ++step) {
      if (scenario.below(8) == 0) {
        (void)original.change_workers(scenario.changed(original.roster()));
      }
      (void)original.observe(scenario.telemetry(original.decision(), original.roster()));
    }
    Controller resumed(original.roster(), options());
    resumed.restore(State::parse(original.state().serialize()));
    ASSERT_EQ(resumed.state().serialize(), original.state().serialize());
    for (int step = 0; step < kSteps; ++step) {
      if (scenario.below(8) == 0) {
        const std::vector<Worker> workers = scenario.changed(original.roster());
        ASSERT_TRUE(same(original.change_workers(workers), resumed.change_workers(workers))) << seed << " at " << step;
      }
      const StepTelemetry telemetry = scenario.telemetry(original.decision(), original.roster());
      ASSERT_TRUE(same(original.observe(telemetry), resumed.observe(telemetry))) << seed << " at " << step;
    }
  }
}

TEST_P(EveryPolicyTest, LeavesEverythingAsItWasWhenAChangeIsRefused) {
  Scenario scenario(1);
  Controller controller(scenario.roster(), options());
  (void)controller.observe(scenario.telemetry(controller.decision(), controller.roster()));
  const std::string before = controller.state().serialize();
  std::vector<Worker> workers = controller.roster().workers;
  for (Worker& worker : workers) {
    worker.min_batch = 0;
    worker.max_batch = 0;
  }
  EXPECT_THROW((void)controller.change_workers(workers), std::invalid_argument);
  EXPECT_EQ(controller.state().serialize(), before);
}

// Every registered policy, once with its defaults, once for each word that one of its options permits, and once with
// decisions so frequent that a scenario sees several.
std::vector<std::string> policies() {
  std::vector<std::string> result;
  for (const PolicyHelp& help : policy_help()) {
    result.push_back(help.name);
    for (const OptionTable::Row& row : help.options) {
      const std::string option = help.name + ":" + row.name + "=";
      if (row.name == "interval") {
        result.push_back(option + "2");
      }
      for (std::size_t from = 0, bar = 0; bar != std::string::npos; from = bar + 3) {
        bar = row.permitted.find(" | ", from);
        const std::string word = row.permitted.substr(from, bar - from);
        if (row.permitted.find(" | ") != std::string::npos && word != row.standard) {
          result.push_back(option + word);
        }
      }
    }
  }
  result.emplace_back("omnilearn:variant=code,interval=3");
  result.emplace_back("omnilearn:sum=scaled,b-min=0,b-max=40");
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryPolicyTest, testing::ValuesIn(policies()), [](const auto& policy) {
  std::string name = policy.param;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace isochron
