// Any bytes are a list of keys and values, or std::invalid_argument that names the file.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "isochron/core/error.h"
#include "isochron/io/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    for (const auto& entry : isochron::io::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz.toml")) {
      ISO_CHECK(entry.place.starts_with("fuzz.toml:"), "an entry without its place");
    }
  } catch (const std::invalid_argument& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("fuzz.toml:"), "a refusal without its file");
  }
  return 0;
}
