// The step that a job is at, in a file that both the job and its launcher map into memory: how speed changes of an
// emulated cluster come at their step, without a message.
//
// One word that is written and read atomically; publishing costs one store.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace isochron::io {

class StepFile {
 public:
  static constexpr std::int64_t kNotStarted = -1;

  /// Makes the file, at kNotStarted. Throws isochron::Error naming it.
  static StepFile create(const std::filesystem::path& path);
  static StepFile open(const std::filesystem::path& path);
  StepFile(StepFile&& other) noexcept;
  StepFile& operator=(StepFile&&) = delete;
  ~StepFile();

  void publish(std::int64_t step);
  [[nodiscard]] std::int64_t step() const;

 private:
  explicit StepFile(std::atomic<std::int64_t>* word) : word_(word) {}
  std::atomic<std::int64_t>* word_;
};

}  // namespace isochron::io
