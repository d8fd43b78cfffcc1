#include "isochron/emulate/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/owner.h"
#include "isochron/io/output_file.h"
#include "isochron/io/process_usage.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;

// A process that starts makes its segment a moment before it uses it.
constexpr auto kNewSegment = std::chrono::minutes(1);

/// Files in `folder` that some process has in its memory.
std::set<std::string> mapped_files(const fs::path& folder) {
  std::set<std::string> files;
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      if (const std::size_t path = line.find(folder.string() + "/"); path != std::string::npos) {
        files.insert(line.substr(path));
      }
    }
  }
  return files;
}

template <class... Value>
void write(const fs::path& path, const Value&... values) {
  io::OutputFile file(path);
  ((file.stream() << values << ' '), ...);
  file.commit();
}

}  // namespace

OwnFolder::OwnFolder(const fs::path& parent) : path_(parent / owner_name()) {
  if (mkdir(path_.c_str(), S_IRWXU) != 0) {
    throw Error("cannot make folder " + path_.string() + ": " + std::strerror(errno));
  }
}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::optional<fs::path> find_job_folder(const std::string& launcher) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::temp_directory_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("isochron-" + launcher + "-") && !is_orphan(name) && fs::exists(entry.path() / "command")) {
      return entry.path();
    }
  }
  return std::nullopt;
}

void remove_orphaned_folders(const fs::path& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (is_orphan(entry.path().filename().string())) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

std::size_t remove_orphaned_segments(const fs::path& folder) {
  // As Open MPI names them: sm_segment.HOST.USER.JOB.RANK. Other hosts, which are containers, may share the folder.
  const std::string prefix = "sm_segment." + io::host_name() + "." + std::to_string(geteuid()) + ".";
  const auto oldest_new = fs::file_time_type::clock::now() - kNewSegment;
  std::vector<fs::path> candidates;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(prefix) && entry.last_write_time(ignored) < oldest_new) {
      candidates.push_back(entry.path());
    }
  }
  if (candidates.empty()) {
    return 0;
  }
  const std::set<std::string> used = mapped_files(folder);
  return static_cast<std::size_t>(std::ranges::count_if(
      candidates, [&](const fs::path& path) { return !used.contains(path.string()) && fs::remove(path, ignored); }));
}

WorkerNotes::WorkerNotes(const fs::path& folder, std::size_t worker) : stem_(folder / std::to_string(worker)) {
}

void WorkerNotes::write_environment(const Variables& variables) const {
  io::OutputFile file(fs::path(stem_) += ".environment");
  for (const auto& [name, value] : variables) {
    file.stream() << name << '=' << value << '\0';
  }
  file.commit();
}

Variables WorkerNotes::environment() const {
  const fs::path path = fs::path(stem_) += ".environment";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error("cannot read " + path.string() + ": " + std::strerror(errno));
  }
  Variables variables;
  for (std::string text; std::getline(file, text, '\0');) {
    const std::size_t sign = text.find('=');
    variables.emplace_back(text.substr(0, sign), text.substr(sign + 1));
  }
  return variables;
}

void WorkerNotes::write_pids(const WorkerPids& pids) const {
  write(fs::path(stem_) += ".pids", pids.process, pids.group);
}

std::optional<WorkerPids> WorkerNotes::pids() const {
  std::ifstream file(fs::path(stem_) += ".pids");
  WorkerPids pids;
  // Below 2 a number means others than that process to kill().
  const bool whole = file >> pids.process >> pids.group && pids.process > 1 && pids.group > 1;
  return whole ? std::optional(pids) : std::nullopt;
}

void WorkerNotes::write_status(int status) const {
  write(fs::path(stem_) += ".status", status);
}

std::optional<int> WorkerNotes::status() const {
  std::ifstream file(fs::path(stem_) += ".status");
  int status = 0;
  return file >> status ? std::optional(status) : std::nullopt;
}

void WorkerNotes::forget_process() const {
  std::error_code none;
  fs::remove(fs::path(stem_) += ".pids", none);
  fs::remove(fs::path(stem_) += ".status", none);
}

std::size_t count_workers(const fs::path& folder) {
  std::size_t count = 0;
  while (fs::exists(folder / (std::to_string(count) + ".environment"))) {
    ++count;
  }
  return count;
}

bool all_have_ended(const fs::path& folder) {
  const std::size_t workers = count_workers(folder);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    if (!WorkerNotes(folder, worker).status()) {
      return false;
    }
  }
  return true;
}

void write_command(const fs::path& folder, const std::vector<std::string>& command) {
  io::OutputFile file(folder / "command");
  for (const std::string& word : command) {
    file.stream() << word << '\0';
  }
  file.commit();
}

std::vector<std::string> read_command(const fs::path& folder) {
  std::ifstream file(folder / "command", std::ios::binary);
  if (!file) {
    throw Error("cannot read " + (folder / "command").string() + ": " + std::strerror(errno));
  }
  std::vector<std::string> command;
  for (std::string word; std::getline(file, word, '\0');) {
    command.push_back(word);
  }
  return command;
}

std::vector<std::string> command_to_join(const fs::path& folder, std::size_t worker) {
  std::vector<std::string> command = read_command(folder);
  // After "isochron enter FOLDER".
  if (command.size() < 3) {
    throw Error((folder / "command").string() + " is damaged: it has " + std::to_string(command.size()) + " arguments");
  }
  command.insert(command.begin() + 3, {"--worker", std::to_string(worker)});
  return command;
}

}  // namespace isochron::emulate
