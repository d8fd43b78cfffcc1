#include "isochron/io/cluster_file.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/io/cluster_writer.h"

namespace isochron::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// The error for `text`; fails if it is accepted.
std::string refusal(const std::string& text) {
  try {
    (void)parse_cluster(text, "c.toml");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 200);
  return "";
}

constexpr const char* kFull = R"(
name = "lab"
description = "two boxes"
sample_seconds = 0.02
common_noise = 0.01

[[worker]]
name = "fast"
kind = "gpu"
cores = 2
overhead = 1.5
plateau = 32
cold_seconds = 0.05
noise = { sigma = 0.1, autocorrelation = 0.5, spike_probability = 0.01, spike_low = 2.0, spike_high = 4.0, drift = 0.001 }
interference = { slowdown = 2.0, on = 10, off = 90, phase = 3 }
network = { rate = "100mbit", delay = "2ms" }
gpu_share = 25
min_batch = 8
max_batch = 64
granularity = 8

[[worker]]
name = "slow"
cores = 0.125
noise = 0.05
count = 2
absent = true

[[change]]
at_step = 100
worker = "slow-1"
event = "join"

[[change]]
at_seconds = 2.5
worker = "*"
cores = 0.5
)";

TEST(ClusterFileTest, ReadsEveryKey) {
  const sim::ClusterSpec cluster = parse_cluster(kFull, "c.toml");
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.description, "two boxes");
  EXPECT_EQ(cluster.sample_seconds, 0.02);
  EXPECT_EQ(cluster.common_noise, 0.01);
  ASSERT_EQ(cluster.workers.size(), 3U);
  const sim::WorkerSpec& fast = cluster.workers[0];
  EXPECT_EQ(fast.name, "fast");
  EXPECT_EQ(fast.kind, "gpu");
  EXPECT_EQ(fast.cores, 2.0);
  EXPECT_EQ(fast.overhead, 1.5);
  EXPECT_EQ(fast.plateau, 32.0);
  EXPECT_EQ(fast.cold_seconds, 0.05);
  EXPECT_EQ(fast.noise.sigma, 0.1);
  EXPECT_EQ(fast.noise.autocorrelation, 0.5);
  EXPECT_EQ(fast.noise.spike_probability, 0.01);
  EXPECT_EQ(fast.noise.spike_low, 2.0);
  EXPECT_EQ(fast.noise.spike_high, 4.0);
  EXPECT_EQ(fast.noise.drift, 0.001);
  EXPECT_EQ(fast.interference.slowdown, 2.0);
  EXPECT_EQ(fast.interference.on, 10);
  EXPECT_EQ(fast.interference.off, 90);
  EXPECT_EQ(fast.interference.phase, 3);
  EXPECT_EQ(fast.link.bytes_per_second, 12.5e6);
  EXPECT_EQ(fast.link.delay_seconds, 0.002);
  EXPECT_EQ(fast.gpu_share, 25.0);
  EXPECT_EQ(fast.min_batch, 8);
  EXPECT_EQ(fast.max_batch, 64);
  EXPECT_EQ(fast.granularity, 8);
  EXPECT_FALSE(fast.absent);
}

TEST(ClusterFileTest, RepeatsAWorkerByItsCount) {
  const sim::ClusterSpec cluster = parse_cluster(kFull, "c.toml");
  EXPECT_EQ(cluster.workers.at(1).name, "slow-0");
  EXPECT_EQ(cluster.workers.at(2).name, "slow-1");
  EXPECT_EQ(cluster.workers.at(2).noise.sigma, 0.05);
  EXPECT_TRUE(cluster.workers.at(2).absent);
}

TEST(ClusterFileTest, ReadsChangesByStepAndByTime) {
  const sim::ClusterSpec cluster = parse_cluster(kFull, "c.toml");
  ASSERT_EQ(cluster.changes.size(), 2U);
  EXPECT_EQ(cluster.changes[0].at_step, 100);
  EXPECT_EQ(cluster.changes[0].event, Event::kJoin);
  EXPECT_EQ(cluster.changes[0].cores, std::nullopt);
  EXPECT_EQ(cluster.changes[1].at_seconds, 2.5);
  EXPECT_EQ(cluster.changes[1].worker, "*");
  EXPECT_EQ(cluster.changes[1].cores, 0.5);
}

TEST(ClusterFileTest, HasDefaultsForEverythingButTheWorkersThemselves) {
  const sim::ClusterSpec cluster = parse_cluster("[[worker]]\n[[worker]]\n", "folder/pair.toml");
  EXPECT_EQ(cluster.name, "pair");
  EXPECT_EQ(cluster.workers.at(1).name, "worker-1");
  EXPECT_EQ(cluster.workers.at(1).cores, 1.0);
  EXPECT_EQ(cluster.workers.at(1).max_batch, kNoLimit);
}

TEST(ClusterFileTest, WritesWhatItReads) {
  const sim::ClusterSpec cluster = parse_cluster(kFull, "c.toml");
  const std::string text = to_toml(cluster);
  const sim::ClusterSpec copy = parse_cluster(text, "other.toml");
  EXPECT_EQ(to_toml(copy), text);
  EXPECT_EQ(copy.name, "lab");
  EXPECT_EQ(copy.workers.at(0).link.bytes_per_second, 12.5e6);
  EXPECT_EQ(copy.workers.at(0).interference.phase, 3);
  EXPECT_EQ(copy.changes.at(1).at_seconds, 2.5);
}

TEST(ClusterFileTest, NamesTheLineOfMalformedToml) {
  EXPECT_THAT(refusal("[[worker]]\nname = \"a\"\ncores = = 2\n"), StartsWith("c.toml:3: "));
  EXPECT_THAT(refusal("[[worker]\n"), StartsWith("c.toml:1: "));
  EXPECT_THAT(refusal("name = \"\xff\xfe\"\n"), StartsWith("c.toml:1: "));
}

TEST(ClusterFileTest, NamesKeyValueAndWhatIsPermitted) {
  EXPECT_EQ(refusal("[[worker]]\ncores = \"two\"\n"), "c.toml:2: cores is 'two'; permitted: a finite number");
  EXPECT_EQ(refusal("[[worker]]\ncores = nan\n"), "c.toml:2: cores is nan; permitted: a finite number");
  EXPECT_EQ(refusal("[[worker]]\ncores = inf\n"), "c.toml:2: cores is inf; permitted: a finite number");
  EXPECT_EQ(refusal("[[worker]]\nmin_batch = 1.5\n"), "c.toml:2: min_batch is 1.5; permitted: a whole number");
  EXPECT_EQ(refusal("[[worker]]\nabsent = 1\n"), "c.toml:2: absent is 1; permitted: true or false");
  EXPECT_EQ(refusal("worker = 3\n"), "c.toml:1: worker is 3; permitted: tables that start with [[worker]]");
  EXPECT_THAT(
      refusal("[[worker]]\nname = \"a\"\n\ncores = -1\n"),
      AllOf(StartsWith("c.toml:4: "), HasSubstr("cores is -1; permitted: ")));
  EXPECT_THAT(
      refusal("[[worker]]\nnetwork = { rate = \"fast\" }\n"),
      StartsWith("c.toml:2: rate is 'fast'; permitted: a number above 0 with bit"));
  EXPECT_THAT(refusal("[[worker]]\nnoise = \"loud\"\n"), HasSubstr("c.toml:2: noise is 'loud'; permitted: a number"));
}

// A launcher hands the name on in an environment whose variables end with a zero.
TEST(ClusterFileTest, RefusesNamesWithControlCharacters) {
  for (const char* const name : {R"("a\u0000LD_PRELOAD=b.so")", R"("a\u001b[2J")", R"("a\nb")", R"("\u007f")"}) {
    EXPECT_THAT(
        refusal(std::string("[[worker]]\nname = ") + name + "\n"),
        HasSubstr("text in quotes without control characters"));
    EXPECT_THAT(refusal(std::string("[[worker]]\nkind = ") + name + "\n"), StartsWith("c.toml:2: kind is "));
  }
}

TEST(ClusterFileTest, KeepsEveryErrorOnOneLine) {
  EXPECT_EQ(refusal("[[worker]]\ncores = n\n.01\n").find('\n'), std::string::npos);
  EXPECT_EQ(refusal("\"a\\nb\" = 1\n[[worker]]\n").find('\n'), std::string::npos);
  EXPECT_EQ(refusal("[[worker]]\nname = \"a\\nb\"\ncores = -1\n").find('\n'), std::string::npos);
}

TEST(ClusterFileTest, RefusesUnknownKeysEverywhere) {
  EXPECT_THAT(refusal("speed = 1\n[[worker]]\n"), StartsWith("c.toml:1: unknown key 'speed'; permitted: name, "));
  EXPECT_THAT(refusal("[[worker]]\ncore = 1\n"), StartsWith("c.toml:2: unknown key 'core'; permitted: "));
  EXPECT_THAT(refusal("[[worker]]\nnoise = { sigm = 1 }\n"), HasSubstr("unknown key 'sigm'"));
  EXPECT_THAT(refusal("[[worker]]\nnetwork = { speed = 1 }\n"), HasSubstr("unknown key 'speed'"));
  EXPECT_THAT(refusal("[[worker]]\ninterference = { up = 1 }\n"), HasSubstr("unknown key 'up'"));
  EXPECT_THAT(refusal("[[worker]]\n[[change]]\nwhen = 1\n"), HasSubstr("unknown key 'when'"));
}

TEST(ClusterFileTest, RefusesChangesThatMakeNoSense) {
  const std::string worker = "[[worker]]\nname = \"a\"\n[[change]]\n";
  EXPECT_THAT(refusal(worker + "at_step = 1\nworker = \"b\"\ncores = 1\n"), HasSubstr("c.toml:5: worker is 'b'"));
  EXPECT_THAT(refusal(worker + "worker = \"a\"\ncores = 1\n"), StartsWith("c.toml:3: "));
  EXPECT_THAT(refusal(worker + "at_step = 1\nat_seconds = 1\nworker = \"a\"\ncores = 1\n"), StartsWith("c.toml:3: "));
  EXPECT_THAT(refusal(worker + "at_step = 1\nworker = \"a\"\n"), StartsWith("c.toml:3: "));
  EXPECT_THAT(
      refusal(worker + "at_step = 1\nworker = \"a\"\nevent = \"pause\"\n"),
      HasSubstr("c.toml:6: event is 'pause'; permitted: kill, stop, continue, join"));
  EXPECT_THAT(refusal(worker + "at_step = -1\nworker = \"a\"\ncores = 1\n"), StartsWith("c.toml:4: "));
}

TEST(ClusterFileTest, RefusesAnEmptyClusterAndNamesThatRepeat) {
  EXPECT_THAT(refusal(""), HasSubstr("permitted: 1 or more"));
  EXPECT_THAT(refusal("[[worker]]\nname = \"a\"\n[[worker]]\nname = \"a\"\n"), HasSubstr("\"a\""));
}

TEST(ClusterFileTest, RefusesAbsurdSizesBeforeTakingMemory) {
  EXPECT_THAT(refusal("[[worker]]\ncount = 1000000000000000000\n"), HasSubstr("at most 100000 workers"));
  EXPECT_THAT(refusal("[[worker]]\ncount = 0\n"), StartsWith("c.toml:2: count is 0; permitted: 1 or more"));
  EXPECT_THAT(refusal("[[worker]]\ncount = 100000\n[[worker]]\n"), HasSubstr("one worker too many"));
  EXPECT_THAT(refusal(std::string((1U << 20U) + 1, '\n')), HasSubstr("1048576 bytes"));
  EXPECT_THAT(refusal("name = \"" + std::string(1001, 'x') + "\"\n[[worker]]\n"), HasSubstr("at most 1000 bytes"));
  EXPECT_EQ(parse_cluster("[[worker]]\ncount = 100000\n", "c").workers.size(), 100'000U);
}

TEST(ClusterFileTest, RefusesDeepNestingInEveryForm) {
  EXPECT_THAT(refusal("x = " + std::string(100'000, '[')), StartsWith("c.toml:1: "));
  std::string dotted = "a";
  for (int i = 0; i < 100'000; ++i) {
    dotted += ".a";
  }
  EXPECT_THAT(refusal("\n" + dotted + " = 1\n"), StartsWith("c.toml:2: more than 64 dots"));
  EXPECT_THAT(refusal("[" + dotted + "]\n"), StartsWith("c.toml:1: more than 64 dots"));
}

TEST(ClusterFileTest, SaysWhyAFileCannotBeRead) {
  EXPECT_THROW((void)read_cluster_file("no/such/file.toml"), Error);
  EXPECT_THROW((void)read_cluster_file(testing::TempDir()), Error);
  const std::filesystem::path path = own_path(".toml");
  std::ofstream(path) << "[[worker]]\ncores = 3\n";
  EXPECT_EQ(read_cluster_file(path).workers.at(0).cores, 3.0);
  EXPECT_EQ(read_cluster_file(path).name, path.stem());
  std::filesystem::remove(path);
}

TEST(ClusterFileTest, ReadsEveryExample) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ISOCHRON_SOURCE_DIR "/examples/clusters")) {
    EXPECT_NO_THROW((void)read_cluster_file(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 4);
}

}  // namespace
}  // namespace isochron::io
