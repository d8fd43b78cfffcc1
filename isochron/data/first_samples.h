// The beginning of a dataset as a dataset of its own: for quick runs and tests. Thread-safe, as all datasets are.
#pragma once

#include <cstdint>
#include <memory>

#include "isochron/data/dataset.h"

namespace isochron::data {

/// The first `count` samples. Throws std::invalid_argument unless there are as many, and at least 1.
std::shared_ptr<const Dataset> first_samples(std::shared_ptr<const Dataset> dataset, std::int64_t count);

}  // namespace isochron::data
