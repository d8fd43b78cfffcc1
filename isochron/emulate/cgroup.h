// CPU quotas for groups of processes by Linux control groups, version 1 (cpu.cfs_quota_us) or 2 (cpu.max): whichever
// the cpu controller belongs to. The kernel keeps them to about 0.2 %.
//
// Groups are made below the group that this process is in, or in version 2 below the nearest one above it that can be
// divided: what limits this process limits its workers too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isochron/emulate/cpu_limiter.h"

namespace isochron::emulate {

/// Where the groups of the cpu controller are.
struct CgroupTree {
  int version = 0;              // 1 or 2
  std::filesystem::path mount;  // the root that can be seen
  std::filesystem::path own;    // the group of this process, at or below it
};

/// From the texts of /proc/self/mountinfo and /proc/self/cgroup; none if there is no cpu controller.
[[nodiscard]] std::optional<CgroupTree> parse_cgroup_tree(const std::string& mountinfo, const std::string& cgroup);
[[nodiscard]] std::optional<CgroupTree> find_cgroup_tree();

/// The nearest group, from ours upwards, in which groups with quotas can be made. In version 2 one with processes of
/// its own cannot be divided, unless it is the root of all, which alone has no type: the kernel lets it have the cpu
/// controller, but makes it a group of threads, and those below it are of no use for processes. Throws
/// isochron::Error saying what is against every one of them.
[[nodiscard]] std::filesystem::path parent_for_groups(const CgroupTree& tree);

/// One group per worker. Not thread-safe.
class CpuGroups : public CpuLimiter {
 public:
  /// Throws isochron::Error saying what was refused, with nothing left behind. `name` must pass for is_orphan() once
  /// this process is gone.
  CpuGroups(const CgroupTree& tree, const std::string& name, const std::vector<Quota>& quotas);
  /// Kills whatever still runs in the groups and removes them.
  ~CpuGroups() override;

  /// Throws isochron::Error.
  void add(const Quota& quota) override;
  /// Processes are in the group from before they begin.
  void watch(std::size_t /*worker*/, const WorkerProcess& /*process*/) override {}
  void forget(std::size_t /*worker*/) override {}
  void limit(std::size_t worker, const Quota& quota) override;
  /// For join_cgroup, and for reading what the kernel counts (cpu.stat).
  [[nodiscard]] std::filesystem::path folder(std::size_t worker) const;

 private:
  int version_;
  std::filesystem::path folder_;
  std::size_t workers_ = 0;
};

/// Moves this process; throws isochron::Error.
void join_cgroup(const std::filesystem::path& group);

/// Kills and removes what launchers that are gone have left.
void remove_orphaned_cgroups(const CgroupTree& tree);

}  // namespace isochron::emulate
