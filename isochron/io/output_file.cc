#include "isochron/io/output_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error("cannot write " + path.string() + ": " + why);
}

/// A name in the same folder, so that the rename stays within one file system.
fs::path temporary_name(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + "." + std::to_string(getpid()) + ".tmp");
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
  stream_.open(temporary_.empty() ? path_ : temporary_, std::ios::binary | std::ios::trunc);
  if (!stream_) {
    fail(path_, std::strerror(errno));
  }
}

OutputFile::~OutputFile() {
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
  flush_to_disk(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace isochron::io
