#include "isochron/io/step_file.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

using Word = std::atomic<std::int64_t>;
static_assert(Word::is_always_lock_free, "a lock would be one process's own");

[[noreturn]] void fail(const std::filesystem::path& path, const char* why) {
  throw Error("step file " + path.string() + ": " + why);
}

/// Closed when it goes; what was mapped stays mapped.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (number_ < 0) {
      fail(path, std::strerror(errno));
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

void* map(const std::filesystem::path& path, const Descriptor& file) {
  void* const memory = ::mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) {
    fail(path, std::strerror(errno));
  }
  return memory;
}

}  // namespace

StepFile StepFile::create(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDWR | O_CREAT | O_EXCL);
  // Unlike a hole in the file, allocated space cannot be missing when the word is written.
  if (const int error = ::posix_fallocate(file.number(), 0, sizeof(Word)); error != 0) {
    fail(path, std::strerror(error));
  }
  return StepFile(new (map(path, file)) Word(kNotStarted));
}

StepFile StepFile::open(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDWR);
  struct stat status{};
  if (::fstat(file.number(), &status) != 0) {
    fail(path, std::strerror(errno));
  }
  if (status.st_size != sizeof(Word)) {
    fail(path, "it holds something else");
  }
  return StepFile(static_cast<Word*>(map(path, file)));
}

StepFile::StepFile(StepFile&& other) noexcept : word_(std::exchange(other.word_, nullptr)) {
}

StepFile::~StepFile() {
  if (word_ != nullptr) {
    ::munmap(word_, sizeof(Word));
  }
}

void StepFile::publish(std::int64_t step) {
  word_->store(step, std::memory_order_release);
}

std::int64_t StepFile::step() const {
  return word_->load(std::memory_order_acquire);
}

}  // namespace isochron::io
