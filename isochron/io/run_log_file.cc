#include "isochron/io/run_log_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/core/trace/chain.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFirstWindow = std::int64_t{1} << 16U;
constexpr std::int64_t kMostWindow = std::int64_t{1} << 26U;  // eight of the longest lines

[[noreturn]] void fail_to_log(const fs::path& path, const std::string& why) {
  throw Error("cannot write run log " + path.string() + ": " + why);
}

/// The number of the step after this line, if the line says.
std::optional<std::int64_t> step_after(const std::string& line) {
  try {
    const RunLogLine record = parse_run_log_line(line);
    if (const auto* const step = std::get_if<StepRecord>(&record)) {
      return step->step + 1;
    }
    if (const auto* const update = std::get_if<UpdateRecord>(&record)) {
      return update->step + 1;
    }
    if (const auto* const event = std::get_if<EventRecord>(&record); event != nullptr && sets_step(*event)) {
      return event->step;
    }
    return std::holds_alternative<RunHeader>(record) ? std::optional<std::int64_t>(0) : std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // damaged; the reader will tell
  }
}

/// What a log ends with.
struct End {
  std::optional<std::int64_t> bytes;  // to the end of its last whole line
  std::optional<std::uint64_t> link;  // the last one
  std::optional<std::int64_t> next_step;
};

/// Reads the last `window` bytes of a file of `size`.
End end_within(std::istream& stream, std::int64_t size, std::int64_t window) {
  const std::int64_t begin = size - window;
  std::string text(static_cast<std::size_t>(window), '\0');
  stream.clear();
  stream.seekg(begin);
  stream.read(text.data(), window);
  text.resize(static_cast<std::size_t>(stream.gcount()));
  End end;
  std::size_t feed = text.rfind('\n');
  if (feed != std::string::npos) {
    end.bytes = begin + static_cast<std::int64_t>(feed) + 1;
  }
  while (feed != std::string::npos && !(end.link && end.next_step)) {
    const std::size_t before = feed == 0 ? std::string::npos : text.rfind('\n', feed - 1);
    if (before == std::string::npos && begin > 0) {
      break;  // only a part of this line is here
    }
    const std::size_t first = before == std::string::npos ? 0 : before + 1;
    const std::string line = text.substr(first, feed - first);
    if (const auto parts = split_link(line); parts && !end.link) {
      end.link = parts->link;
    }
    if (!end.next_step) {
      end.next_step = step_after(line);
    }
    feed = before;
  }
  return end;
}

End find_end(const fs::path& path, std::int64_t size) {
  std::ifstream stream(path, std::ios::binary);
  for (std::int64_t window = std::min(size, kFirstWindow);; window = std::min(size, 2 * window)) {
    End end = end_within(stream, size, window);
    if (window >= std::min(size, kMostWindow) || (end.bytes && end.link && end.next_step)) {
      return end;
    }
  }
}

void refuse_difference(const fs::path& path, const char* what, const std::string& there, const std::string& here) {
  if (there != here) {
    fail_to_log(path, std::string("it is there already, of a run whose ") + what + " is " + there + ", not " + here);
  }
}

/// 0: missing, empty, or no regular file.
std::int64_t size_of(const fs::path& path) {
  std::error_code none;
  const std::uintmax_t size = fs::is_regular_file(path, none) ? fs::file_size(path, none) : 0;
  return none ? 0 : static_cast<std::int64_t>(size);
}

/// Whether all that is there is the beginning of a header, which a crash left.
bool holds_half_a_header(const fs::path& path) {
  constexpr std::string_view kBegin = R"({"type":"run",)";
  std::string front(kBegin.size(), '\0');
  std::ifstream stream(path, std::ios::binary);
  stream.read(front.data(), static_cast<std::streamsize>(front.size()));
  front.resize(static_cast<std::size_t>(stream.gcount()));
  return !front.empty() && kBegin.starts_with(front);
}

}  // namespace

RunLogFile::RunLogFile(fs::path path, const RunHeader& header, Start start) : path_(std::move(path)) {
  try {
    if (start == Start::kContinue && size_of(path_) > 0) {
      go_on(header);
    } else {
      set_aside_what_is_there();
      begin(header);
    }
  } catch (...) {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    throw;
  }
}

RunLogFile::~RunLogFile() {
  ::close(descriptor_);
}

void RunLogFile::open(int flags) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
  if (descriptor_ < 0) {
    fail_to_log(path_, std::strerror(errno));
  }
}

void RunLogFile::set_aside_what_is_there() {
  const std::int64_t size = size_of(path_);
  if (size == 0 || find_end(path_, size).next_step == 0) {
    return;  // a header alone
  }
  fs::path other;
  for (int number = 1; other.empty() || fs::exists(other); ++number) {
    other = path_;
    other.replace_filename(path_.stem().string() + "." + std::to_string(number) + path_.extension().string());
  }
  std::error_code trouble;
  fs::rename(path_, other, trouble);
  if (trouble) {
    fail_to_log(path_, trouble.message());
  }
  set_aside_ = std::move(other);
}

void RunLogFile::begin(const RunHeader& header) {
  open(O_CREAT | O_TRUNC);
  link_ = kFirstLink;
  write_line(to_json(header));
}

void RunLogFile::go_on(const RunHeader& header) {
  errno = 0;
  std::ifstream stream(path_, std::ios::binary);
  if (!stream) {
    fail_to_log(path_, std::strerror(errno));
  }
  RunLogReader reader(stream, path_.string());
  std::optional<RunLogLine> first;
  try {
    first = reader.next();
  } catch (const std::invalid_argument& error) {
    fail_to_log(path_, std::string("it is there already and is no run log (") + error.what() + ")");
  }
  if (!first) {
    if (!holds_half_a_header(path_)) {
      fail_to_log(path_, "it is there already and is no run log");
    }
    begin(header);
    return;
  }
  const auto& theirs = std::get<RunHeader>(*first);
  refuse_difference(path_, "seed", std::to_string(theirs.seed), std::to_string(header.seed));
  refuse_difference(path_, "global batch", std::to_string(theirs.global_batch), std::to_string(header.global_batch));
  if (theirs.samples_per_epoch != 0 && header.samples_per_epoch != 0) {
    refuse_difference(
        path_, "epoch in samples", std::to_string(theirs.samples_per_epoch), std::to_string(header.samples_per_epoch));
  }
  const End end = find_end(path_, size_of(path_));
  if (!end.bytes || !end.next_step || (reader.chained() && !end.link)) {
    fail_to_log(path_, "it is there already, and its end is no run log");
  }
  continued_ = true;
  next_step_ = *end.next_step;
  link_ = reader.chained() ? end.link : std::nullopt;
  bytes_ = *end.bytes;
  open(0);
  if (::ftruncate(descriptor_, bytes_) != 0) {
    fail_to_log(path_, std::strerror(errno));
  }
}

void RunLogFile::write_line(const std::string& line) {
  const auto link = link_ ? std::optional(next_link(*link_, line)) : std::nullopt;
  const std::string text = (link ? with_link(line, *link) : line) + '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) {
      const int why = errno;
      // A pipe or a device keeps what it has got; nothing can be done about it.
      [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, bytes_);
      fail_to_log(path_, std::strerror(why));
    }
    done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
  bytes_ += static_cast<std::int64_t>(text.size());
  link_ = link;
}

}  // namespace isochron::io
