#include "isochron/data/dataset.h"

#include <functional>
#include <numeric>
#include <string>

#include "isochron/core/error.h"

namespace isochron::data {

std::int64_t SampleShape::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>{});
}

std::int64_t SampleShape::bytes() const {
  return elements() << static_cast<unsigned>(element);  // 1, 2 or 4 bytes each
}

void Dataset::check_read(std::int64_t index, std::span<const std::byte> out) const {
  ISO_CHECK(index >= 0 && index < size(), "sample " + std::to_string(index) + " of " + std::to_string(size()));
  ISO_CHECK(
      std::ssize(out) == shape().bytes(),
      "a sample of " + std::to_string(shape().bytes()) + " bytes into " + std::to_string(out.size()));
}

}  // namespace isochron::data
