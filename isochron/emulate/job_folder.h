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
  /// In `parent`, under a name of owner_name(). Throws isochron::Error.
  explicit OwnFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The folder of the launcher with this process number, as text; nothing if there is none that runs.
[[nodiscard]] std::optional<std::filesystem::path> find_job_folder(const std::string& launcher);

/// Removes those of launchers that are gone.
void remove_orphaned_folders(const std::filesystem::path& parent = std::filesystem::temp_directory_path());

/// Where Open MPI has its shared memory unless it is told otherwise.
inline constexpr const char* kSharedMemory = "/dev/shm";

/// Removes the shared memory of MPI processes of this user that were killed, as it lies in `folder`: nobody has it in
/// use, and none was made in the last minute. Returns how many.
std::size_t remove_orphaned_segments(const std::filesystem::path& folder = kSharedMemory);

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

  /// A process takes the place of one that has ended.
  void forget_process() const;

 private:
  std::filesystem::path stem_;
};

/// Workers that have notes; their numbers are below this.
[[nodiscard]] std::size_t count_workers(const std::filesystem::path& folder);

/// Whether all workers of the job have noted how they ended.
[[nodiscard]] bool all_have_ended(const std::filesystem::path& folder);

/// What every worker runs, for those that join later.
void write_command(const std::filesystem::path& folder, const std::vector<std::string>& command);
[[nodiscard]] std::vector<std::string> read_command(const std::filesystem::path& folder);
/// The same as a process that joins later in the place of `worker`.
[[nodiscard]] std::vector<std::string> command_to_join(const std::filesystem::path& folder, std::size_t worker);

}  // namespace isochron::emulate
