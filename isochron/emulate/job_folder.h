// The folder in which a launcher and its workers leave each other notes: the step file, what a worker's environment
// holds, which process it is, and how it ended.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/emulate/worker_process.h"

namespace isochron::emulate {

/// The launcher's side: makes the folder and removes it.
class OwnFolder {
 public:
  /// In the temporary folder, under a name of owner_name(). Throws isochron::Error.
  OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Removes those of launchers that are gone.
void remove_orphaned_folders();

using Variables = std::vector<std::pair<std::string, std::string>>;  // of an environment

/// A worker's notes in a job's folder. Each appears whole or not at all; all throw isochron::Error.
class WorkerNotes {
 public:
  WorkerNotes(const std::filesystem::path& folder, std::size_t worker);

  void write_environment(const Variables& variables) const;
  [[nodiscard]] Variables environment() const;
  void write_pids(const WorkerPids& pids) const;
  [[nodiscard]] std::optional<WorkerPids> pids() const;
  void write_status(int status) const;  // 128 + signal if one ended it
  [[nodiscard]] std::optional<int> status() const;

 private:
  std::filesystem::path stem_;
};

/// Whether all workers of the job have noted how they ended.
[[nodiscard]] bool all_have_ended(const std::filesystem::path& folder);

}  // namespace isochron::emulate
