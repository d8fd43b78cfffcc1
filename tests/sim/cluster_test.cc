#include "isochron/sim/cluster.h"

#include <functional>
#include <limits>
#include <stdexcept>

#include "small_cluster.h"
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

/// The complaint about a cluster of two workers after `edit`; empty if there is none.
std::string complaint(const std::function<void(ClusterSpec&)>& edit) {
  ClusterSpec cluster = small_cluster({1, 2});
  edit(cluster);
  try {
    cluster.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

std::string worker_complaint(const std::function<void(WorkerSpec&)>& edit) {
  return complaint([&](ClusterSpec& cluster) { edit(cluster.workers[1]); });
}

std::string change_complaint(const Change& change) {
  return complaint([&](ClusterSpec& cluster) { cluster.changes.push_back(change); });
}

TEST(ClusterTest, NamesPlaceFieldValueAndWhatIsPermitted) {
  EXPECT_EQ(complaint([](ClusterSpec&) {}), "");
  EXPECT_EQ(
      worker_complaint([](WorkerSpec& worker) { worker.cores = -1.5; }),
      "worker \"w1\": cores is -1.5; permitted: a finite number above 0");
  EXPECT_EQ(
      worker_complaint([](WorkerSpec& worker) { worker.name = "w0"; }),
      "cluster \"small\": a worker's name is \"w0\" again; permitted: distinct names");
  EXPECT_EQ(
      complaint([](ClusterSpec& cluster) { cluster.workers.clear(); }),
      "cluster \"small\": the number of workers is 0; permitted: 1 or more");
  EXPECT_EQ(
      change_complaint({.at_step = 3, .worker = "nobody", .cores = 2.0}),
      "change 1: worker is \"nobody\"; permitted: the name of a worker, or \"*\"");
  EXPECT_EQ(
      change_complaint({.worker = "w0", .cores = 2.0}),
      "change 1: its time is missing; permitted: one of at_step and at_seconds");
}

TEST(ClusterTest, RefusesWorkersOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(WorkerSpec&)>> edits{
      [](WorkerSpec& worker) { worker.name = "*"; },
      [](WorkerSpec& worker) { worker.name = ""; },
      [&](WorkerSpec& worker) { worker.cores = nan; },
      [&](WorkerSpec& worker) { worker.cores = infinity; },
      [](WorkerSpec& worker) { worker.overhead = -1.0; },
      [&](WorkerSpec& worker) { worker.plateau = nan; },
      [](WorkerSpec& worker) { worker.noise.sigma = -0.1; },
      [](WorkerSpec& worker) { worker.noise.autocorrelation = 1.0; },
      [](WorkerSpec& worker) { worker.noise.spike_probability = 1.1; },
      [](WorkerSpec& worker) { worker.noise.spike_low = 1.0; },
      [](WorkerSpec& worker) { worker.noise.spike_high = 2.0; },
      [](WorkerSpec& worker) { worker.noise.drift = -1.0; },
      [](WorkerSpec& worker) { worker.interference.slowdown = 0.5; },
      [](WorkerSpec& worker) { worker.interference.on = -1; },
      [](WorkerSpec& worker) { worker.interference.off = std::numeric_limits<std::int64_t>::max(); },
      [](WorkerSpec& worker) { worker.link.bytes_per_second = -1.0; },
      [](WorkerSpec& worker) { worker.link.delay_seconds = -1.0; },
      [](WorkerSpec& worker) { worker.gpu_share = 101.0; },
      [](WorkerSpec& worker) { worker.min_batch = -1; },
      [](WorkerSpec& worker) { worker.max_batch = 0; },
      [](WorkerSpec& worker) { worker.granularity = 0; },
  };
  for (std::size_t i = 0; i < edits.size(); ++i) {
    EXPECT_NE(worker_complaint(edits[i]), "") << i;
  }
}

TEST(ClusterTest, RefusesChangesThatSayTooMuchOrTooLittle) {
  EXPECT_EQ(change_complaint({.at_step = 1, .worker = "*", .cores = 2.0}), "");
  EXPECT_NE(change_complaint({.at_step = 1, .at_seconds = 1.0, .worker = "*", .cores = 2.0}), "");
  EXPECT_NE(change_complaint({.at_step = 1, .worker = "*"}), "");
  EXPECT_NE(change_complaint({.at_step = 1, .worker = "*", .cores = 2.0, .event = Event::kKill}), "");
  EXPECT_NE(change_complaint({.at_step = -1, .worker = "*", .cores = 2.0}), "");
  EXPECT_NE(change_complaint({.at_seconds = -1.0, .worker = "*", .cores = 2.0}), "");
  EXPECT_NE(change_complaint({.at_step = 1, .worker = "*", .cores = 0.0}), "");
  EXPECT_NE(
      complaint([](ClusterSpec& cluster) {
        cluster.workers[0].absent = true;
        cluster.workers[1].absent = true;
      }),
      "");
}

TEST(BuiltinTest, EveryClusterIsValidForEveryLength) {
  for (const BuiltinHelp& help : builtin_clusters()) {
    for (const std::int64_t steps : {std::int64_t{1}, std::int64_t{500}, std::numeric_limits<std::int64_t>::max()}) {
      const ClusterSpec cluster = builtin_cluster(help.name, steps);
      EXPECT_NO_THROW(cluster.validate()) << help.name;
      EXPECT_EQ(cluster.name, help.name);
      EXPECT_FALSE(help.description.empty());
      for (const Change& change : cluster.changes) {
        EXPECT_LT(*change.at_step, steps) << help.name;
      }
    }
  }
}

TEST(BuiltinTest, HasThePapersCores) {
  const auto cores = [](const char* name) {
    std::vector<double> list;
    for (const WorkerSpec& worker : builtin_cluster(name, 1).workers) {
      list.push_back(worker.cores);
    }
    return list;
  };
  EXPECT_EQ(cores("hl2"), (std::vector<double>{12, 12, 8, 16}));
  EXPECT_EQ(cores("hl4"), (std::vector<double>{9, 9, 6, 24}));
  EXPECT_EQ(cores("hl8"), (std::vector<double>{6, 6, 4, 32}));
  EXPECT_EQ(cores("h2"), (std::vector<double>{9, 12, 18}));
  EXPECT_EQ(cores("h10"), (std::vector<double>{2, 17, 20}));
  EXPECT_EQ(cores("mixed16").size(), 16U);
  EXPECT_DOUBLE_EQ(cores("mixed256").back() / cores("mixed256").front(), 8.0);
}

TEST(BuiltinTest, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  try {
    (void)builtin_cluster("hl3", 10);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 53), "cluster is \"hl3\"; permitted: hl1, hl2, hl4, hl8, dyna");
  }
}

}  // namespace
}  // namespace isochron::sim
