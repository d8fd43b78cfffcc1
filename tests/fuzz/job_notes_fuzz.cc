// Whatever the notes of a job's folder hold, they are read, or refused by isochron::Error.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/job_folder.h"
#include "isochron/io/join_requests.h"
#include "isochron/io/step_file.h"

namespace {

namespace fs = std::filesystem;

template <class Action>
void refuse_or_read(const Action& action) {
  try {
    action();
  } catch (const isochron::Error&) {  // NOLINT(bugprone-empty-catch): what is refused is refused
  }
}

void check(const fs::path& folder, const std::string& bytes) {
  for (const char* const name : {"0.environment", "0.pids", "0.status", "step", "command", "join-1.json"}) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  const isochron::emulate::WorkerNotes notes(folder, 0);
  for (const auto& [name, value] : notes.environment()) {
    ISO_CHECK(name.size() + value.size() <= 2 * bytes.size(), "more than the file holds");
  }
  (void)notes.pids();
  (void)notes.status();
  (void)isochron::emulate::all_have_ended(folder);
  refuse_or_read([&] { (void)isochron::emulate::command_to_join(folder, 0); });
  refuse_or_read([&] {
    const auto request = isochron::io::take_join_request(folder);
    ISO_CHECK(request && !request->command.empty(), "a request without a program");
  });
  ISO_CHECK(!isochron::io::take_join_request(folder), "a request that stays");
  try {
    (void)isochron::io::StepFile::open(folder / "step").step();
  } catch (const isochron::Error&) {
    ISO_CHECK(bytes.size() != sizeof(std::int64_t), "a step file that cannot be opened");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path folder = fs::temp_directory_path() / ("isochron_job_notes_fuzz_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  check(folder, {reinterpret_cast<const char*>(data), size});
  fs::remove_all(folder);
  return 0;
}
