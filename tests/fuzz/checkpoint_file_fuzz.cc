// Any bytes are a checkpoint file whose parts can be read, or isochron::Error that names the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "isochron/core/error.h"
#include "isochron/io/checkpoint_file.h"

namespace {

constexpr std::size_t kFrontBytes = 20;

void check_file(std::span<const std::byte> file) {
  std::istringstream stream(std::string(reinterpret_cast<const char*>(file.data()), file.size()));
  try {
    isochron::io::CheckpointReader reader(stream, "fuzz.ckpt");
    reader.verify();
  } catch (const isochron::Error& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("cannot read checkpoint fuzz.ckpt: "), "without its file");
  }
}

/// The checksum keeps most inputs from the index: here it is taken apart whatever the checksum says.
void check_index(std::span<const std::byte> file) {
  std::uint64_t index_bytes = 0;
  std::memcpy(&index_bytes, file.data() + 8, sizeof index_bytes);
  const auto rest = file.subspan(kFrontBytes);
  const auto index = rest.first(std::min<std::uint64_t>(index_bytes, rest.size()));
  try {
    const auto parts = isochron::io::decode_index(index, rest.size() - index.size());
    for (const auto& part : parts) {
      ISO_CHECK(part.offset + part.bytes <= rest.size() - index.size(), "a part beyond the end");
    }
    const std::string again = isochron::io::encode_index(parts);
    ISO_CHECK(std::ranges::equal(std::as_bytes(std::span(again)), index), "the round trip changed the index");
  } catch (const isochron::Error&) {
    return;
  }
}

/// One that travels from worker to worker tells how much follows.
void check_outline(std::span<const std::byte> index) {
  try {
    std::uint64_t end = 0;
    for (const auto& part : isochron::io::decode_index(index, std::nullopt)) {
      ISO_CHECK(part.offset == end && part.bytes <= std::uint64_t{1} << 63, "a part of another place");
      end += part.bytes;
    }
    ISO_CHECK(end < std::uint64_t{1} << 63, "more bytes than can be counted");
  } catch (const isochron::Error&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  check_file(file);
  if (file.size() >= kFrontBytes) {
    check_index(file);
    check_outline(file.subspan(kFrontBytes));
  }
  return 0;
}
