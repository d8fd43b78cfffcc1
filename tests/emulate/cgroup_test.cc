#include "isochron/emulate/cgroup.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/emulate/await.h"
#include "tests/emulate/control_groups.h"
#include "tests/emulate/spinner.h"
#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/emulate/owner.h"
#include "isochron/emulate/worker_process.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;
using testing::StartsWith;

TEST(CgroupTreeTest, FindsTheVersionThatHasTheCpu) {
  const auto found = parse_cgroup_tree(
      "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "31 30 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
      "32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n"
      "33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n",
      "3:cpuset:/\n2:cpu,cpuacct:/user.slice\n0::/user.slice/session\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->version, 1);
  EXPECT_EQ(found->mount, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(found->own, "/sys/fs/cgroup/cpu,cpuacct/user.slice");
}

TEST(CgroupTreeTest, FindsAGroupOfVersionTwo) {
  const std::string mounts = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  const auto found = parse_cgroup_tree(mounts, "0::/user.slice/user-1000.slice/session-2.scope\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->version, 2);
  EXPECT_EQ(found->own, "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope");
  EXPECT_EQ(parse_cgroup_tree(mounts, "0::/\n")->own, "/sys/fs/cgroup");
  EXPECT_EQ(parse_cgroup_tree(mounts, "0::/../..\n")->own, "/sys/fs/cgroup") << "a container's own root";
}

TEST(CgroupTreeTest, SeesAContainersPartOfTheTree) {
  const auto found = parse_cgroup_tree(
      "33 30 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n", "2:cpu:/docker/abc/inner\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->own, "/sys/fs/cgroup/cpu/inner");
}

TEST(CgroupTreeTest, FindsNothingWhereNothingIs) {
  EXPECT_FALSE(parse_cgroup_tree("", ""));
  EXPECT_FALSE(parse_cgroup_tree("30 25 0:26 / /proc rw - proc proc rw\n", "0::/\n"));
}

TEST(ParentForGroupsTest, PassesOverGroupsThatHoldProcesses) {
  const fs::path folder = own_path();
  const CgroupTree tree{.version = 2, .mount = folder, .own = folder / "slice" / "session"};
  fs::create_directories(tree.own);
  for (const fs::path& group : {tree.own, tree.own.parent_path(), tree.mount}) {
    std::ofstream(group / "cgroup.subtree_control") << "";
    std::ofstream(group / "cgroup.procs") << (group == tree.own.parent_path() ? "" : "4711\n");
    std::ofstream(group / "cgroup.type") << "domain\n";
  }
  EXPECT_EQ(parent_for_groups(tree), tree.own.parent_path());
  EXPECT_EQ(content(tree.own / "cgroup.subtree_control"), "") << "the kernel would take it, and spoil the group";
  std::ofstream(tree.own.parent_path() / "cgroup.procs") << "4712\n";
  EXPECT_THROW((void)parent_for_groups(tree), Error);
  fs::remove(tree.mount / "cgroup.type");
  EXPECT_EQ(parent_for_groups(tree), tree.mount) << "the root of all";
  fs::remove_all(folder);
}

class CpuGroupsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_control_groups(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    tree_ = find_cgroup_tree();
  }

  [[nodiscard]] std::string quota(const CpuGroups& groups, std::size_t worker) const {
    return content(groups.folder(worker) / (tree_->version == 1 ? "cpu.cfs_quota_us" : "cpu.max"));
  }
  /// A line of the group's cpu.stat.
  static long count(const CpuGroups& groups, std::size_t worker, const std::string& name) {
    std::istringstream text(content(groups.folder(worker) / "cpu.stat"));
    for (std::string key, value; text >> key >> value;) {
      if (key == name) {
        return std::stol(value);
      }
    }
    return -1;
  }

  std::optional<CgroupTree> tree_;
};

TEST_F(CpuGroupsTest, KeepASpinningProcessToItsQuota) {
  const CpuGroups groups(*tree_, owner_name(), {{.microseconds = 2'500, .period = 10'000}});
  const Spinner spinner([&] { join_cgroup(groups.folder(0)); });
  const WorkerProcess process({.process = spinner.pid(), .group = spinner.pid()});
  ASSERT_TRUE(await([&] { return count(groups, 0, "nr_throttled") >= 30; }));
  const auto used = std::chrono::duration_cast<std::chrono::microseconds>(process.cpu_time().value()).count();
  // It was stopped 30 times, each time after most of its 2.5 ms: the kernel takes back what a core was handed and did
  // not use, a fifth of it on a busy machine. It never had more, but for what is handed out ahead to a core and what
  // was used before the group was joined.
  EXPECT_GT(used, 30 * 2'500 * 0.5);
  EXPECT_LT(used, static_cast<double>(count(groups, 0, "nr_periods") + 4) * 2'500 * 1.2);
}

TEST_F(CpuGroupsTest, TakeNewQuotasAndKeepThemApart) {
  CpuGroups groups(
      *tree_, owner_name(), {{.microseconds = 1'000, .period = 10'000}, {.microseconds = 5'000, .period = 10'000}});
  groups.limit(0, {.microseconds = 7'500, .period = 10'000});
  EXPECT_THAT(quota(groups, 0), StartsWith("7500"));
  EXPECT_THAT(quota(groups, 1), StartsWith("5000"));
}

TEST_F(CpuGroupsTest, SayWhatTheKernelRefusesAndLeaveNothing) {
  EXPECT_THROW(CpuGroups(*tree_, owner_name(), {{.microseconds = 10, .period = 10'000}}), Error);
  EXPECT_FALSE(fs::exists(tree_->own / owner_name()));
}

TEST_F(CpuGroupsTest, TakeTheirProcessesWithThem) {
  std::optional<CpuGroups> groups(std::in_place, *tree_, owner_name(), std::vector<Quota>{{5'000, 10'000}});
  const fs::path folder = groups->folder(0);
  const Spinner spinner([&] { join_cgroup(folder); });
  ASSERT_TRUE(await([&] { return content(folder / "cgroup.procs") == std::to_string(spinner.pid()) + "\n"; }));
  groups.reset();
  EXPECT_FALSE(fs::exists(folder.parent_path()));
  EXPECT_EQ(process_state(spinner.pid()), "Z");
}

TEST_F(CpuGroupsTest, AreRemovedOnceTheirOwnerIsGone) {
  const CpuGroups living(*tree_, owner_name(), {{.microseconds = 5'000, .period = 10'000}});
  const fs::path parent = living.folder(0).parent_path().parent_path();
  const fs::path left = parent / ("isochron-" + std::to_string(getpid()) + "-1");  // started at another time
  fs::create_directory(left);
  fs::create_directory(left / "0");
  remove_orphaned_cgroups(*tree_);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(living.folder(0)));
}

}  // namespace
}  // namespace isochron::emulate
