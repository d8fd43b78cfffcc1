#include "isochron/data/byte_source.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

[[noreturn]] void fail(const std::string& name, const std::string& reason) {
  throw Error("cannot read data file " + name + ": " + reason);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }

  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

class FileSource final : public ByteSource {
 public:
  FileSource(std::string name, std::int64_t size, Descriptor descriptor)
      : ByteSource(std::move(name), size), descriptor_(std::move(descriptor)) {}

 private:
  void read_within(std::int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t count = ::pread(descriptor_.number(), out.data(), out.size(), offset);
      if (count < 0 && errno != EINTR) {
        fail(name(), std::strerror(errno));
      }
      if (count == 0) {
        fail(name(), "it ends at byte " + std::to_string(offset) + " but had " + std::to_string(size()));
      }
      if (count > 0) {
        offset += count;
        out = out.subspan(static_cast<std::size_t>(count));
      }
    }
  }

  Descriptor descriptor_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::vector<std::byte> bytes)
      : ByteSource(std::move(name), std::ssize(bytes)), bytes_(std::move(bytes)) {}

 private:
  void read_within(std::int64_t offset, std::span<std::byte> out) const override {
    if (!out.empty()) {
      std::memcpy(out.data(), bytes_.data() + offset, out.size());
    }
  }

  std::vector<std::byte> bytes_;
};

}  // namespace

void ByteSource::read(std::int64_t offset, std::span<std::byte> out) const {
  ISO_CHECK(
      offset >= 0 && offset <= size_ && std::ssize(out) <= size_ - offset,
      std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " of " + name_);
  read_within(offset, out);
}

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  // A pipe without a writer would block for ever without O_NONBLOCK; regular files do not mind it.
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (descriptor.number() < 0 || ::fstat(descriptor.number(), &status) != 0) {
    fail(path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(path.string(), "it is no regular file");
  }
  return std::make_unique<FileSource>(path.string(), status.st_size, std::move(descriptor));
}

std::unique_ptr<ByteSource> in_memory(std::string name, std::vector<std::byte> bytes) {
  return std::make_unique<MemorySource>(std::move(name), std::move(bytes));
}

void refuse(const ByteSource& source, const std::string& found, const std::string& permitted) {
  throw std::invalid_argument(source.name() + ": " + found + "; permitted: " + permitted);
}

}  // namespace isochron::data
