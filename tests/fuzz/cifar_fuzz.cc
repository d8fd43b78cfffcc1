// Any file is a dataset whose samples can be read, or std::invalid_argument that names it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data_fuzz.h"

#include "isochron/data/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using isochron::data::Cifar;
  for (const Cifar kind : {Cifar::k10, Cifar::k100}) {
    isochron::data::check_dataset([&] {
      std::vector<std::unique_ptr<isochron::data::ByteSource>> files;
      files.push_back(isochron::data::fuzz_source({data, size}));
      return isochron::data::read_cifar(std::move(files), kind);
    });
  }
  return 0;
}
