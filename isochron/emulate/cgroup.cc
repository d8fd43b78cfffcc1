#include "isochron/emulate/cgroup.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/owner.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;

/// What can be read: a group may go away meanwhile.
std::string content(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// One write, unbuffered, so that a refusal is seen here and not when nobody looks.
void write(const fs::path& file, const std::string& text) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) >= 0;
  const int error = errno;
  if (descriptor >= 0) {
    close(descriptor);
  }
  if (!written) {
    throw Error("cannot write '" + text + "' to " + file.string() + ": " + std::strerror(error));
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    throw Error("cannot make control group " + folder.string() + ": " + (error ? error.message() : "it exists"));
  }
}

/// Whether a list of controllers, however separated, has cpu: not cpuset, not cpuacct.
bool has_cpu(const std::string& list) {
  static const std::regex word("\\bcpu\\b");
  return std::regex_search(list, word);
}

struct Membership {
  int version = 0;
  std::string path;
};

/// From lines such as "1:cpu,cpuacct:/path" or, for version 2, "0::/path"; the cpu controller belongs to one of them.
Membership parse_membership(const std::string& text) {
  Membership found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (has_cpu(controllers)) {
      return {.version = 1, .path = line.substr(second + 1)};
    }
    if (controllers.empty()) {
      found = {.version = 2, .path = line.substr(second + 1)};
    }
  }
  return found;
}

/// `path` in a tree that is mounted from `root` on. A container may see only a part of the tree.
std::string path_below(const std::string& root, const std::string& path) {
  if (path.starts_with("/..")) {
    return "";
  }
  return root != "/" && path.starts_with(root) ? path.substr(root.size()) : path;
}

/// Lets the folders in `group` have quotas (version 2).
void divide_cpu(const fs::path& group) {
  if (!has_cpu(content(group / "cgroup.subtree_control"))) {
    write(group / "cgroup.subtree_control", "+cpu");
  }
}

void set_quota(int version, const fs::path& group, const Quota& quota) {
  const std::string microseconds = std::to_string(quota.microseconds);
  const std::string period = std::to_string(quota.period);
  if (version == 2) {
    write(group / "cpu.max", microseconds + " " + period);
    return;
  }
  if (content(group / "cpu.cfs_period_us") != period + "\n") {
    write(group / "cpu.cfs_period_us", period);
  }
  write(group / "cpu.cfs_quota_us", microseconds);
}

void kill_members(const fs::path& group) {
  std::istringstream members(content(group / "cgroup.procs"));
  for (pid_t pid = 0; members >> pid;) {
    kill(pid, SIGKILL);
  }
}

/// With its processes, which take a moment to be gone.
void remove_group(const fs::path& group) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(group, ignored)) {
    if (entry.is_directory()) {
      remove_group(entry.path());
    }
  }
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (rmdir(group.c_str()) != 0 && errno == EBUSY && std::chrono::steady_clock::now() < deadline) {
    kill_members(group);
    std::this_thread::sleep_for(1ms);
  }
}

/// Moving a process is a right of its own: lets a child try.
void check_joining(const fs::path& group) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      join_cgroup(group);
    } catch (const Error&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    throw Error("cannot move a process into control group " + group.string());
  }
}

}  // namespace

std::optional<CgroupTree> parse_cgroup_tree(const std::string& mountinfo, const std::string& cgroup) {
  const auto [version, path] = parse_membership(cgroup);
  std::istringstream mounts(mountinfo);
  for (std::string line; std::getline(mounts, line);) {
    // "31 23 0:26 ROOT MOUNT OPTIONS [MORE] - TYPE SOURCE CONTROLLERS"
    std::istringstream before(line);
    std::istringstream after(line.substr(std::min(line.size(), line.find(" - ") + 3)));
    std::string skipped;
    std::string root;
    std::string mount;
    std::string type;
    std::string controllers;
    before >> skipped >> skipped >> skipped >> root >> mount;
    after >> type >> skipped >> controllers;
    if ((version == 1 && type == "cgroup" && has_cpu(controllers)) || (version == 2 && type == "cgroup2")) {
      const fs::path below = fs::path(path_below(root, path)).relative_path();
      return CgroupTree{.version = version, .mount = mount, .own = below.empty() ? fs::path(mount) : mount / below};
    }
  }
  return std::nullopt;
}

std::optional<CgroupTree> find_cgroup_tree() {
  std::optional<CgroupTree> tree = parse_cgroup_tree(content("/proc/self/mountinfo"), content("/proc/self/cgroup"));
  std::error_code ignored;
  if (tree && !fs::exists(tree->own, ignored)) {
    tree->own = tree->mount;
  }
  if (tree && tree->version == 2 && !has_cpu(content(tree->mount / "cgroup.controllers"))) {
    return std::nullopt;
  }
  return tree;
}

fs::path parent_for_groups(const CgroupTree& tree) {
  if (tree.version == 1) {
    return tree.own;
  }
  std::string refusal;
  for (fs::path group = tree.own;; group = group.parent_path()) {
    try {
      if (exists(group / "cgroup.type") && !content(group / "cgroup.procs").empty()) {
        throw Error("control group " + group.string() + " holds processes, so it cannot be divided");
      }
      divide_cpu(group);
      return group;
    } catch (const Error& error) {
      refusal += refusal.empty() ? error.what() : std::string("; ") + error.what();
      if (group == tree.mount) {
        throw Error(refusal);
      }
    }
  }
}

CpuGroups::CpuGroups(const CgroupTree& tree, const std::string& name, const std::vector<Quota>& quotas)
    : version_(tree.version), folder_(parent_for_groups(tree) / name) {
  make_folder(folder_);
  try {
    if (version_ == 2) {
      divide_cpu(folder_);
    }
    for (const Quota& quota : quotas) {
      add(quota);
    }
  } catch (...) {
    remove_group(folder_);
    throw;
  }
}

CpuGroups::~CpuGroups() {
  remove_group(folder_);
}

void CpuGroups::add(const Quota& quota) {
  const fs::path group = folder(workers_);
  make_folder(group);
  set_quota(version_, group, quota);
  check_joining(group);
  ++workers_;
}

void CpuGroups::limit(std::size_t worker, const Quota& quota) {
  if (quota.microseconds > 0) {  // the kernel knows no quota of 0, and stopped processes need none
    set_quota(version_, folder(worker), quota);
  }
}

fs::path CpuGroups::folder(std::size_t worker) const {
  return folder_ / std::to_string(worker);
}

void join_cgroup(const fs::path& group) {
  write(group / "cgroup.procs", "0");
}

void remove_orphaned_cgroups(const CgroupTree& tree) {
  for (fs::path group = tree.own;; group = group.parent_path()) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(group, ignored)) {
      if (entry.is_directory() && is_orphan(entry.path().filename().string())) {
        remove_group(entry.path());
      }
    }
    if (group == tree.mount) {
      return;
    }
  }
}

}  // namespace isochron::emulate
