#include "isochron/data/catalog.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "support.h"
#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

class CatalogTest : public testing::Test {
 protected:
  ~CatalogTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::filesystem::path& file, const Bytes& content) {
    create_directories((folder_ / file).parent_path());
    std::ofstream stream(folder_ / file, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(content.data()), std::ssize(content));
  }

  std::unique_ptr<Dataset> open(std::string_view name, Split split) {
    return open_dataset(name, {.folder = folder_, .split = split, .context = 4});
  }

  std::filesystem::path folder_ = own_path();
};

// One black pixel with the given label.
const Bytes kImage = bytes({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0});
Bytes one_label(int label) {
  return bytes({0, 0, 8, 1, 0, 0, 0, 1, label});
}

std::int64_t first_label(const Dataset& dataset) {
  std::int64_t label = 0;
  sample_of(dataset, 0, &label);
  return label;
}

TEST_F(CatalogTest, FindsMnistPlainOrCompressed) {
  write("mnist/train-images-idx3-ubyte", kImage);
  write("mnist/train-labels-idx1-ubyte", one_label(4));
  write("mnist/t10k-images-idx3-ubyte.gz", gzip(kImage));
  write("mnist/t10k-labels-idx1-ubyte.gz", gzip(one_label(5)));
  EXPECT_EQ(first_label(*open("mnist", Split::kTrain)), 4);
  EXPECT_EQ(first_label(*open("mnist", Split::kTest)), 5);
}

TEST_F(CatalogTest, FindsTheDocumentsOfAText) {
  write("shakespeare/train.bin", bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0}));
  write("shakespeare/train.starts", bytes({0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}));
  const auto dataset = open_dataset("shakespeare", {.folder = folder_, .context = 4, .documents = true});
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->lengths()[1], 2);
  EXPECT_TRUE(open("shakespeare", Split::kTrain)->lengths().empty());
  EXPECT_EQ(
      refusal([] { (void)open_dataset("mnist", {.documents = true}); }),
      "dataset is 'mnist' with documents; permitted: shakespeare, synthetic-tokens");
}

TEST_F(CatalogTest, FindsCifar) {
  for (int i = 1; i <= 5; ++i) {
    write("cifar10/data_batch_" + std::to_string(i) + ".bin", bytes({i}) + counting(3072));
  }
  write("cifar10/test_batch.bin", bytes({9}) + counting(3072));
  write("cifar100/test.bin", bytes({9, 99}) + counting(3072));
  EXPECT_EQ(open("cifar10", Split::kTrain)->size(), 5);
  EXPECT_EQ(first_label(*open("cifar10", Split::kTest)), 9);
  EXPECT_EQ(first_label(*open("cifar100", Split::kTest)), 99);
}

TEST_F(CatalogTest, FindsTexts) {
  write("shakespeare/train.bin", bytes({84, 0, 111, 0, 32, 0, 98, 0, 101, 0}));
  EXPECT_EQ(sample_of(*open("shakespeare", Split::kTrain), 0).size(), 10U);
}

TEST_F(CatalogTest, MakesTrainingAndTestDataThatDiffer) {
  for (const char* name : {"synthetic", "synthetic-tokens"}) {
    EXPECT_NE(sample_of(*open(name, Split::kTrain), 0), sample_of(*open(name, Split::kTest), 0));
  }
}

TEST_F(CatalogTest, NamesWhatIsMissing) {
  EXPECT_EQ(
      refusal([&] { open("imagenet", Split::kTrain); }),
      "dataset is 'imagenet'; permitted: cifar10, cifar100, fashion-mnist, mnist, shakespeare, synthetic, "
      "synthetic-tokens");
  EXPECT_THROW(open("cifar10", Split::kTrain), Error);
}

TEST_F(CatalogTest, AugmentsTrainingPhotographsOnly) {
  EXPECT_TRUE(customary_augmentation("cifar10", Split::kTrain).flip);
  EXPECT_EQ(customary_augmentation("cifar10", Split::kTrain).crop_padding, 4);
  EXPECT_FALSE(customary_augmentation("cifar10", Split::kTest).flip);
  EXPECT_EQ(customary_augmentation("cifar100", Split::kTest).crop_padding, 0);
  EXPECT_FALSE(customary_augmentation("fashion-mnist", Split::kTrain).flip);
  EXPECT_EQ(
      refusal([] { customary_augmentation("shakespeare", Split::kTrain); }),
      "dataset is 'shakespeare'; permitted: one of images");
}

TEST_F(CatalogTest, ListsItsNamesInOrder) {
  EXPECT_TRUE(std::ranges::is_sorted(dataset_names()));
}

}  // namespace
}  // namespace isochron::data
