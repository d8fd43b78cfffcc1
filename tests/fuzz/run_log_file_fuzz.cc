// Whatever a file holds, a run goes on with it as a log, or refuses and leaves it as it is.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/run_log_reader.h"

namespace {

namespace fs = std::filesystem;
using isochron::io::RunLogFile;

std::string content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void check(const fs::path& path, const std::string& before) {
  std::ofstream(path, std::ios::binary) << before;
  try {
    RunLogFile log(path, {}, RunLogFile::Start::kContinue);
    const std::string kept = content(path);
    ISO_CHECK(!log.continued() || before.starts_with(kept), "what was there has changed");
    ISO_CHECK(kept.ends_with('\n') && log.next_step() >= 0, "a log that cannot go on");
    log.write(isochron::StepRecord{.step = log.next_step()});
    ISO_CHECK(content(path).starts_with(kept), "a new line changed what was there");
  } catch (const isochron::Error& refusal) {
    ISO_CHECK(content(path) == before, "a refused file has changed: " + std::string(refusal.what()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path path = fs::temp_directory_path() / ("isochron_run_log_file_fuzz_" + std::to_string(::getpid()));
  check(path, {reinterpret_cast<const char*>(data), size});
  fs::remove(path);
  return 0;
}
