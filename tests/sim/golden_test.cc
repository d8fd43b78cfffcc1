// Golden traces: batch sizes and step times of every policy, pinned. A change of behaviour shows up as a difference
// here; if it was meant, write the traces anew with ISOCHRON_UPDATE_GOLDEN=1 and review what changed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <set>
#include <sstream>

#include "small_cluster.h"
#include <gtest/gtest.h>

#include "isochron/core/policy/registry.h"
#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(ISOCHRON_SOURCE_DIR) / "tests/sim/golden";
const std::vector<std::string> kClusters{"hl8", "dynamic"};

bool updating() {
  const char* flag = std::getenv("ISOCHRON_UPDATE_GOLDEN");
  return flag != nullptr && std::string(flag) == "1";
}

/// Every policy as it is by default, and the one that is two policies in one.
std::vector<std::string> policies() {
  std::vector<std::string> list{"lb-bsp:device=gpu"};
  for (const PolicyHelp& help : policy_help()) {
    list.push_back(help.name);
  }
  return list;
}

std::string file_name(std::string policy, const std::string& cluster) {
  std::ranges::replace_if(policy, [](char c) { return c == ':' || c == '='; }, '-');
  return policy + "-" + cluster + ".txt";
}

struct Line {
  std::vector<std::int64_t> batch_sizes;
  double seconds = 0.0;
};

std::vector<Line> trace(const std::string& policy, const std::string& cluster) {
  const Options options{.global_batch = 128, .steps = 30, .seed = 1};
  std::vector<Line> lines;
  for (const StepRecord& record : records_of(noisy(builtin_cluster(cluster, options.steps), 0.05), options, policy)) {
    Line line{.batch_sizes = {}, .seconds = record.seconds};
    for (const WorkerStep& worker : record.workers) {
      line.batch_sizes.push_back(worker.batch);
    }
    lines.push_back(line);
  }
  return lines;
}

void write(const std::filesystem::path& path, const std::vector<Line>& lines) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path);
  file << std::setprecision(12);
  for (const Line& line : lines) {
    for (const std::int64_t batch : line.batch_sizes) {
      file << batch << ' ';
    }
    file << line.seconds << '\n';
  }
}

/// Four batch sizes and the seconds on every line.
std::vector<Line> read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Line> lines;
  Line line{.batch_sizes = {0, 0, 0, 0}};
  auto& batches = line.batch_sizes;
  while (file >> batches[0] >> batches[1] >> batches[2] >> batches[3] >> line.seconds) {
    lines.push_back(line);
  }
  return lines;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, DecidesAsBefore) {
  for (const std::string& cluster : kClusters) {
    const std::filesystem::path path = kFolder / file_name(GetParam(), cluster);
    const std::vector<Line> now = trace(GetParam(), cluster);
    if (updating()) {
      write(path, now);
    }
    const std::vector<Line> before = read(path);
    ASSERT_EQ(now.size(), before.size()) << path << "; ISOCHRON_UPDATE_GOLDEN=1 writes it";
    for (std::size_t step = 0; step < now.size(); ++step) {
      EXPECT_EQ(now[step].batch_sizes, before[step].batch_sizes) << path << ", step " << step;
      EXPECT_NEAR(now[step].seconds / before[step].seconds, 1.0, 1e-9) << path << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, GoldenTest, ::testing::ValuesIn(policies()), [](const auto& instance) {
  std::string name = instance.param;
  std::erase_if(name, [](char c) { return c == '-' || c == ':' || c == '='; });
  return name;
});

TEST(GoldenFolderTest, HoldsNoTraceOfAPolicyThatIsGone) {
  std::set<std::string> expected;
  for (const std::string& policy : policies()) {
    for (const std::string& cluster : kClusters) {
      expected.insert(file_name(policy, cluster));
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    EXPECT_TRUE(expected.contains(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace isochron::sim
