// The datasets that Isochron knows by name, as `make data` lays them out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "isochron/data/augment.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

enum class Split : std::uint8_t { kTrain, kTest };

struct CatalogOptions {
  std::filesystem::path folder = "data";  // a dataset's files are in the subfolder of its name
  Split split = Split::kTrain;
  std::int64_t context = 256;  // of datasets of tokens
  bool documents = false;      // of datasets of tokens: samples are their documents, of unequal length
  std::uint64_t seed = 0;      // of synthetic datasets
};

/// In alphabetical order.
std::span<const std::string_view> dataset_names();

/// Throws std::invalid_argument on a name that is not in dataset_names().
void check_dataset_name(std::string_view name);

/// Throws std::invalid_argument on a name that is not in dataset_names(), isochron::Error if a file is missing.
std::unique_ptr<Dataset> open_dataset(std::string_view name, const CatalogOptions& options);

/// What is customary for the dataset: mean and deviation of its training images, for training on small photographs also
/// flips and crops. Throws std::invalid_argument if it is not one of images.
AugmentOptions customary_augmentation(std::string_view name, Split split);

}  // namespace isochron::data
