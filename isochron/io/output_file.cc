#include "isochron/io/output_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error("cannot write " + path.string() + ": " + why);
}

constexpr std::string_view kTemporary = ".tmp";

/// A name in the same folder, so that the rename stays within one file system.
fs::path temporary_name(const fs::path& path) {
  return path.parent_path() /
         ("." + path.filename().string() + "." + std::to_string(getpid()) + std::string(kTemporary));
}

/// Whether temporary_name() may have made it of a name that begins with `prefix`.
bool is_temporary(const std::string& name, std::string_view prefix) {
  return name.starts_with("." + std::string(prefix)) && name.ends_with(kTemporary);
}

/// The lock on a file, to be closed; -1 if another process holds it, or the file system knows no locks.
int lock(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

void unlock(int& descriptor) {
  if (descriptor >= 0) {
    ::close(std::exchange(descriptor, -1));
  }
}

/// Makes the file and locks it. Whatever already goes by the name is not written to: somebody may have put a link there
/// that leads elsewhere. -1 with errno if it cannot be made.
int create(const fs::path& path) {
  constexpr int kNew = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  int descriptor = ::open(path.c_str(), kNew, 0666);
  if (descriptor < 0 && errno == EEXIST) {
    int abandoned = lock(path);
    if (abandoned >= 0) {
      ::unlink(path.c_str());
      unlock(abandoned);
      descriptor = ::open(path.c_str(), kNew, 0666);
    }
  }
  if (descriptor >= 0) {
    ::flock(descriptor, LOCK_EX | LOCK_NB);
  }
  return descriptor;
}

/// Returns once the disk holds the content of a file, or the names in a folder. What has no such thing, or may be
/// written but not read, is left to the system.
void flush_to_disk(const fs::path& file_or_folder) {
  const int descriptor = ::open(file_or_folder.c_str(), O_RDONLY | O_CLOEXEC);
  const bool failed = descriptor < 0 ? errno != EACCES : ::fsync(descriptor) != 0 && errno != EINVAL;
  const int why = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (failed) {
    fail(file_or_folder, std::strerror(why));
  }
}

}  // namespace

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) {
    fail(path_, "it is a directory");
  }
  if (fs::is_symlink(fs::symlink_status(path_, ignored)) && fs::exists(status)) {
    path_ = fs::canonical(path_);  // the link stays a link
  }
  if (fs::is_regular_file(status) && access(path_.c_str(), W_OK) != 0) {
    fail(path_, std::strerror(errno));
  }
  if (!fs::exists(status) || fs::is_regular_file(status)) {
    temporary_ = temporary_name(path_);
  }
  errno = 0;
  if (temporary_.empty()) {
    stream_.open(path_, std::ios::binary | std::ios::trunc);
  } else if (lock_ = create(temporary_); lock_ >= 0) {
    stream_.open(temporary_, std::ios::binary | std::ios::in);  // "in" keeps it from being made anew
  }
  if (!stream_.is_open()) {
    const int why = errno;
    unlock(lock_);
    fail(path_, std::strerror(why));
  }
}

OutputFile::~OutputFile() {
  unlock(lock_);
  if (!temporary_.empty()) {
    stream_.close();
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  errno = 0;
  stream_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!stream_) {
    fail(path_, std::strerror(errno));
  }
}

void OutputFile::commit() {
  errno = 0;
  stream_.close();
  if (!stream_) {
    fail(path_, errno != 0 ? std::strerror(errno) : "not everything could be written");
  }
  if (temporary_.empty()) {
    return;
  }
  flush_to_disk(temporary_);
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) {
    fail(path_, error.message());
  }
  temporary_.clear();
  unlock(lock_);
  flush_to_disk(path_.has_parent_path() ? path_.parent_path() : ".");
}

std::size_t remove_abandoned_outputs(const fs::path& folder, std::string_view prefix) {
  std::size_t count = 0;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (!is_temporary(entry.path().filename().string(), prefix) || !entry.is_regular_file(none)) {
      continue;
    }
    if (int mine = lock(entry.path()); mine >= 0) {
      count += fs::remove(entry.path(), none) ? 1U : 0U;
      unlock(mine);
    }
  }
  return count;
}

}  // namespace isochron::io
