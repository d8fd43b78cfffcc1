#include "isochron/io/join_requests.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/io/bounded_json.h"
#include "isochron/io/output_file.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "join-";
constexpr std::string_view kExtension = ".json";
constexpr std::uintmax_t kMostBytes = 1 << 20;
constexpr int kMaxRequestDepth = 1;  // the root is 0, its command 1

bool is_request(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) && name.ends_with(kExtension);
}

/// The ending of the name of a request for this worker.
std::string ending(std::int64_t worker) {
  return "-worker" + std::to_string(worker) + std::string(kExtension);
}

JoinRequestFile parse_request(const fs::path& path) {
  std::error_code error;
  if (const auto bytes = fs::file_size(path, error); error || bytes > kMostBytes) {
    throw Error("a request to join, " + path.string() + ", cannot be read or is above 1 MiB");
  }
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  JoinRequestFile request;
  try {
    const auto document = parse_bounded_json(text, kMaxRequestDepth, "it is not JSON");
    for (const auto& word : array_member(document, "command")) {
      read(word, "command", request.command.emplace_back());
    }
    read_required(document, "host", request.host);
    read_optional(document, "worker", request.worker);
  } catch (const std::invalid_argument& problem) {
    throw Error("a request to join, " + path.string() + ", is damaged: " + problem.what());
  }
  if (request.command.empty()) {
    throw Error("a request to join, " + path.string() + ", names no program");
  }
  return request;
}

}  // namespace

void post_join_request(const fs::path& folder, const JoinRequestFile& request) {
  // Names sort by time; the process keeps those of two launchers apart, and is_asked_for() looks for the worker.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  OutputFile file(
      folder /
      (std::string(kPrefix) + std::to_string(nanoseconds) + "-" + std::to_string(getpid()) + ending(request.worker)));
  nlohmann::json document{{"command", request.command}, {"host", request.host}};
  if (request.worker >= 0) {
    document["worker"] = request.worker;
  }
  file.stream() << document.dump();
  file.commit();
}

std::optional<JoinRequestFile> take_join_request(const fs::path& folder) {
  std::optional<fs::path> oldest;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (is_request(entry.path()) && (!oldest || entry.path() < *oldest)) {
      oldest = entry.path();
    }
  }
  if (!oldest) {
    return std::nullopt;
  }
  try {
    JoinRequestFile request = parse_request(*oldest);
    fs::remove(*oldest, none);
    return request;
  } catch (const Error&) {
    fs::remove(*oldest, none);
    throw;
  }
}

bool is_asked_for(const fs::path& folder, std::int64_t worker) {
  std::error_code none;
  return std::ranges::any_of(fs::directory_iterator(folder, none), [worker](const fs::directory_entry& entry) {
    return is_request(entry.path()) && entry.path().filename().string().ends_with(ending(worker));
  });
}

}  // namespace isochron::io
