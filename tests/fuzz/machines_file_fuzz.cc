// Any bytes are machines that can be planned with, or one line of std::invalid_argument that names the file.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/io/machines_file.h"
#include "isochron/plan/predict.h"

namespace {

isochron::plan::Profile common() {
  isochron::plan::Profile profile;
  profile.model = "m";
  profile.dataset = "d";
  profile.points = {
      {.batch = 1, .p50_seconds = 0.1, .p90_seconds = 0.1, .bytes = 1e6},
      {.batch = 10, .p50_seconds = 1.0, .p90_seconds = 1.2, .bytes = 2e6}};
  return profile;
}

void check(std::string_view bytes) {
  static const isochron::plan::Profile profile = common();
  std::vector<isochron::plan::Group> groups;
  try {
    groups = isochron::io::parse_machines(bytes, "fuzz.toml", profile, [](const std::string&) { return profile; });
  } catch (const std::invalid_argument& refusal) {
    const std::string_view words = refusal.what();
    ISO_CHECK(words.starts_with("fuzz.toml:"), "a refusal without its file");
    ISO_CHECK(words.find('\n') == std::string_view::npos, "a refusal of several lines");
    return;
  }
  if (isochron::plan::count_machines(groups) > 100) {
    return;  // slow
  }
  try {
    (void)isochron::plan::predict_step(groups, {.gradient_bytes = 1e6}, 1000);
  } catch (const std::invalid_argument&) {
    // bounds that do not hold the batch
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  return 0;
}
