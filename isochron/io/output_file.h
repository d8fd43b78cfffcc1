// A file that appears whole or not at all, even if the power fails: written beside its place under a temporary name,
// flushed to the disk, then renamed.
//
// Opening fails early, before the work whose result it will hold. Without commit() nothing is left behind, unless the
// process is killed: then the temporary file stays, which remove_abandoned_outputs() finds. What is there but is no
// regular file (/dev/null, a pipe) is written directly.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <span>
#include <string_view>

namespace isochron::io {

class OutputFile {
 public:
  /// Throws isochron::Error naming the file if it cannot be written.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  [[nodiscard]] std::ostream& stream() { return stream_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Appends to what went into stream(). Throws isochron::Error naming the file and the reason at once.
  void write(std::span<const std::byte> bytes);

  /// Throws isochron::Error naming the file if not all of it could be written.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: written directly, or committed
  int lock_ = -1;                    // held on the temporary file: its writer lives
  std::ofstream stream_;
};

/// Removes the temporary files in `folder` of names that begin with `prefix`, whose writers were killed; those that are
/// being written stay. Returns how many. What cannot be removed is left alone.
std::size_t remove_abandoned_outputs(const std::filesystem::path& folder, std::string_view prefix);

}  // namespace isochron::io
