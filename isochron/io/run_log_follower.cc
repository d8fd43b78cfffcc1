#include "isochron/io/run_log_follower.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20U;

}  // namespace

RunLogFollower::RunLogFollower(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  int why = errno;
  if (descriptor_ >= 0 && std::filesystem::is_directory(path_)) {
    ::close(descriptor_);
    descriptor_ = -1;
    why = EISDIR;
  }
  if (descriptor_ < 0) {
    throw std::invalid_argument("cannot read '" + path_.string() + "': " + std::strerror(why));
  }
}

RunLogFollower::~RunLogFollower() {
  ::close(descriptor_);
}

void RunLogFollower::check_length() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < offset_) {
    throw Error(path_.string() + " became shorter: another run writes there now");
  }
}

std::size_t RunLogFollower::poll(const std::function<void(RunLogLine&&)>& take) {
  check_length();
  std::size_t lines = 0;
  while (true) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kBlock);
    const ssize_t count = ::read(descriptor_, buffer_.data() + before, kBlock);
    buffer_.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
    if (count < 0 && errno != EINTR) {
      throw Error("cannot read " + path_.string() + ": " + std::strerror(errno));
    }
    if (count == 0) {
      return lines;
    }
    offset_ += count > 0 ? count : 0;
    lines += take_lines(take);
  }
}

std::size_t RunLogFollower::take_lines(const std::function<void(RunLogLine&&)>& take) {
  std::size_t begin = 0;
  std::size_t lines = 0;
  while (true) {
    const std::size_t end = buffer_.find('\n', std::max(begin, searched_));
    if (end == std::string::npos) {
      break;
    }
    take_line(begin, end, take);
    ++lines;
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  searched_ = buffer_.size();
  if (buffer_.size() > kMaxLineBytes) {
    take_line(0, buffer_.size(), take);  // refuses it
  }
  return lines;
}

void RunLogFollower::take_line(std::size_t from, std::size_t to, const std::function<void(RunLogLine&&)>& take) {
  ++line_number_;
  try {
    if (to - from > kMaxLineBytes) {
      throw std::invalid_argument(
          "the line has more than " + std::to_string(kMaxLineBytes) + " bytes; permitted: at most that many");
    }
    line_.assign(buffer_, from, to - from);
    RunLogLine record = parse_run_log_line(line_);
    const bool first = line_number_ == 1;
    if (first != std::holds_alternative<RunHeader>(record)) {
      throw std::invalid_argument(
          first ? "the first line is no header; permitted: an object with type \"run\"" : "a second header");
    }
    take(std::move(record));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path_.string() + ":" + std::to_string(line_number_) + ": " + error.what());
  }
}

}  // namespace isochron::io
