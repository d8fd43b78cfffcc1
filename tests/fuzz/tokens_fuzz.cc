// Any file is a dataset whose samples can be read, or std::invalid_argument that names it.
#include <cstddef>
#include <cstdint>

#include "data_fuzz.h"

#include "isochron/data/tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using isochron::data::Element;
  for (const Element element : {Element::kUint16, Element::kUint32}) {
    for (const std::int64_t context : {1, 7}) {
      isochron::data::check_dataset([&] {
        return isochron::data::read_tokens(
            isochron::data::fuzz_source({data, size}), {.element = element, .context = context, .vocabulary = 1000});
      });
      isochron::data::check_dataset([&] {  // whose index the same bytes are
        const auto starts = isochron::data::fuzz_source({data, size});
        return isochron::data::read_documents(
            isochron::data::fuzz_source({data, size}),
            *starts,
            {.element = element, .context = context, .vocabulary = 1000});
      });
    }
  }
  return 0;
}
