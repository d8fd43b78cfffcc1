// Any bytes are a profile that validates and survives a round trip, or std::invalid_argument that names the file.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isochron/core/error.h"
#include "isochron/io/profile_file.h"

namespace {

using isochron::io::parse_profile;

void check(std::string_view bytes) {
  isochron::plan::Profile profile;
  try {
    profile = parse_profile(bytes, "fuzz.json");
  } catch (const std::invalid_argument& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("fuzz.json:"), "a refusal without its file");
    return;
  }
  profile.validate();
  (void)profile.noise();
  const std::string text = isochron::io::to_json(profile, "1");
  ISO_CHECK(
      isochron::io::to_json(parse_profile(text, "again.json"), "1") == text, "the round trip changed the profile");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  return 0;
}
