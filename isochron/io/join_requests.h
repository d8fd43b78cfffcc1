// How a launcher asks a running job to take in another worker: a small file in the job's folder, which the job's first
// worker finds after its step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace isochron::io {

struct JoinRequestFile {
  std::vector<std::string> command;  // program and arguments
  std::string host;                  // empty: any of the job's
  std::int64_t worker = -1;          // its number in the job's folder; -1: it has none

  bool operator==(const JoinRequestFile&) const = default;
};

/// Appears whole or not at all; requests are taken in the order in which they were posted. Throws isochron::Error.
void post_join_request(const std::filesystem::path& folder, const JoinRequestFile& request);

/// Takes the oldest, nothing if there is none. Throws isochron::Error on a file that is none (which is removed).
[[nodiscard]] std::optional<JoinRequestFile> take_join_request(const std::filesystem::path& folder);

/// Whether a request for this worker waits to be taken.
[[nodiscard]] bool is_asked_for(const std::filesystem::path& folder, std::int64_t worker);

}  // namespace isochron::io
