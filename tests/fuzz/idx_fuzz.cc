// Any two files are a dataset whose samples can be read, or std::invalid_argument that names the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data_fuzz.h"

#include "isochron/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// The first two bytes say how long the labels' file is, which comes first.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::span<const std::uint8_t> files(data + 2, size - 2);
  const std::size_t labels = std::min<std::size_t>(data[0] * std::size_t{256} + data[1], files.size());
  isochron::data::check_dataset([&] {
    return isochron::data::read_idx(
        isochron::data::fuzz_source(files.subspan(labels)), isochron::data::fuzz_source(files.first(labels)));
  });
  return 0;
}
