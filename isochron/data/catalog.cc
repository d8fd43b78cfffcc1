#include "isochron/data/catalog.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "isochron/data/cifar.h"
#include "isochron/data/idx.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/data/synthetic_tokens.h"
#include "isochron/data/tokens.h"

namespace isochron::data {
namespace {

using std::filesystem::path;
using Pointer = std::unique_ptr<Dataset>;

/// `file`, or its compressed form if only that is there.
path plain_or_gzip(const path& file) {
  path compressed = file;
  compressed += ".gz";
  std::error_code ignored;  // opening the file will tell
  return !exists(file, ignored) && exists(compressed, ignored) ? compressed : file;
}

Pointer open_mnist(const path& folder, const CatalogOptions& options) {
  const std::string prefix = options.split == Split::kTrain ? "train" : "t10k";
  return open_idx(
      plain_or_gzip(folder / (prefix + "-images-idx3-ubyte")), plain_or_gzip(folder / (prefix + "-labels-idx1-ubyte")));
}

Pointer open_cifar10(const path& folder, const CatalogOptions& options) {
  std::vector<path> files;
  if (options.split == Split::kTest) {
    files.push_back(folder / "test_batch.bin");
  } else {
    for (const char* number : {"1", "2", "3", "4", "5"}) {
      files.push_back(folder / ("data_batch_" + std::string(number) + ".bin"));
    }
  }
  return open_cifar(files, Cifar::k10);
}

Pointer open_cifar100(const path& folder, const CatalogOptions& options) {
  const std::array files = {folder / (options.split == Split::kTrain ? "train.bin" : "test.bin")};
  return open_cifar(files, Cifar::k100);
}

/// A text whose tokens are its bytes.
Pointer open_text(const path& folder, const CatalogOptions& options) {
  const path file = folder / (options.split == Split::kTrain ? "train.bin" : "test.bin");
  const TokenOptions tokens{.element = Element::kUint16, .context = options.context, .vocabulary = 256};
  return options.documents ? open_documents(file, path(file).replace_extension("starts"), tokens)
                           : open_tokens(file, tokens);
}

Pointer make_images(const path& /*folder*/, const CatalogOptions& options) {
  const bool train = options.split == Split::kTrain;
  return synthetic_images({.samples = train ? 60'000 : 10'000, .seed = options.seed, .stream = train ? 0U : 1U});
}

Pointer make_tokens(const path& /*folder*/, const CatalogOptions& options) {
  const bool train = options.split == Split::kTrain;
  return synthetic_tokens(
      {.samples = train ? 10'000 : 1'000,
       .context = options.context,
       .documents = options.documents,
       .seed = options.seed,
       .stream = train ? 0U : 1U});
}

constexpr std::array<std::string_view, 7> kNames = {
    "cifar10", "cifar100", "fashion-mnist", "mnist", "shakespeare", "synthetic", "synthetic-tokens"};
constexpr std::array kOpeners = {
    open_cifar10, open_cifar100, open_mnist, open_mnist, open_text, make_images, make_tokens};
static_assert(kNames.size() == kOpeners.size());

std::size_t number_of(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    std::string names;
    for (const std::string_view known : kNames) {
      names.append(names.empty() ? "" : ", ").append(known);
    }
    throw std::invalid_argument("dataset is '" + std::string(name) + "'; permitted: " + names);
  }
  return static_cast<std::size_t>(found - kNames.begin());
}

}  // namespace

std::span<const std::string_view> dataset_names() {
  return kNames;
}

void check_dataset_name(std::string_view name) {
  (void)number_of(name);
}

std::unique_ptr<Dataset> open_dataset(std::string_view name, const CatalogOptions& options) {
  const auto opener = kOpeners[number_of(name)];
  if (options.documents && opener != open_text && opener != make_tokens) {
    throw std::invalid_argument(
        "dataset is '" + std::string(name) + "' with documents; permitted: shakespeare, synthetic-tokens");
  }
  return opener(options.folder / name, options);
}

AugmentOptions customary_augmentation(std::string_view name, Split split) {
  check_dataset_name(name);
  const bool train = split == Split::kTrain;
  if (name == "cifar10") {
    return {
        .flip = train,
        .crop_padding = train ? 4 : 0,
        .mean = {0.4914, 0.4822, 0.4465},
        .deviation = {0.2470, 0.2435, 0.2616}};
  }
  if (name == "cifar100") {
    return {
        .flip = train,
        .crop_padding = train ? 4 : 0,
        .mean = {0.5071, 0.4865, 0.4409},
        .deviation = {0.2673, 0.2564, 0.2762}};
  }
  if (name == "fashion-mnist") {
    return {.mean = {0.2860}, .deviation = {0.3530}};
  }
  if (name == "mnist") {
    return {.mean = {0.1307}, .deviation = {0.3081}};
  }
  if (name == "synthetic") {
    return {.mean = {0.5}, .deviation = {0.25}};
  }
  throw std::invalid_argument("dataset is '" + std::string(name) + "'; permitted: one of images");
}

}  // namespace isochron::data
