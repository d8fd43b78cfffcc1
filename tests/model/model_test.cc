#include "isochron/model/model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::model {
namespace {

using ::testing::ThrowsMessage;

constexpr InputShape kImages{};
constexpr InputShape kTokens{.context = 16, .classes = 256};

auto making(const std::string& spec, const InputShape& input) {
  return [=] { make_model(spec, input); };
}

auto refused(const std::string& words) {
  return ThrowsMessage<std::invalid_argument>(words);
}

TEST(ModelTest, RefusesUnknownNamesAndOptions) {
  EXPECT_THAT(
      making("lenet", kImages),
      refused("model is 'lenet'; permitted: alexnet, cnn, gpt2, mlp, resnet18, resnet50, vgg11, script:FILE"));
  EXPECT_THAT(
      making("script", kImages),
      refused("model is 'script'; permitted: alexnet, cnn, gpt2, mlp, resnet18, resnet50, vgg11, script:FILE"));
  EXPECT_THAT(making("mlp:depth=3", kImages), refused("model mlp: option is depth; permitted: hidden, layers"));
  EXPECT_THAT(making("mlp:256", kImages), refused("model mlp: option is '256'; permitted: name=value"));
}

TEST(ModelTest, RefusesValuesOutOfRange) {
  EXPECT_THAT(making("cnn:width=0", kImages), refused("model cnn: width is 0; permitted: 1 to 4096"));
  EXPECT_THAT(making("cnn:batch-norm=1", kImages), refused("model cnn: batch-norm is 1; permitted: on | off"));
  EXPECT_THAT(making("vgg11:dropout=1", kImages), refused("model vgg11: dropout is 1; permitted: 0 to 0.99"));
  EXPECT_THAT(
      making("gpt2:heads=5,width=12", kTokens), refused("model gpt2: width is 12; permitted: multiples of heads, 5"));
}

TEST(ModelTest, RefusesDataItCannotTake) {
  EXPECT_THAT(making("cnn", kTokens), refused("model cnn: the data is tokens; permitted: images"));
  EXPECT_THAT(making("gpt2", kImages), refused("model gpt2: the data is images; permitted: tokens"));
  EXPECT_THAT(making("mlp", {.channels = 0}), refused("channels is 0; permitted: 1 or more"));
  EXPECT_THAT(making("mlp", {.context = -1}), refused("context is -1; permitted: 0 or more"));
  EXPECT_THAT(making("mlp", {.classes = 0}), refused("classes is 0; permitted: 1 or more"));
}

TEST(ModelTest, ListsNamesInOrder) {
  const auto names = model_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end() - 1));
  EXPECT_EQ(names.back(), "script:FILE");
}

}  // namespace
}  // namespace isochron::model
