// A disk of a few kilobytes, mounted at a folder that belongs to the running test. Only this process and those it
// starts see it, and it goes with them.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/own_path.h"
#include <sched.h>
#include <sys/mount.h>

namespace isochron {

class SmallDisk {
 public:
  explicit SmallDisk(std::size_t bytes) {
    std::filesystem::create_directories(path_);
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("none", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    why_ = mounted_ ? "" : std::string("cannot mount a small disk: ") + std::strerror(errno);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(path_.c_str(), MNT_DETACH);
    }
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  /// Empty if it is there; else why not.
  [[nodiscard]] const std::string& why_not() const { return why_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] bool make_read_only() const {
    return ::mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  const std::filesystem::path path_ = own_path("_disk");
  bool mounted_ = false;
  std::string why_;
};

}  // namespace isochron
