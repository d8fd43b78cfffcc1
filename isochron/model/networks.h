// The networks behind make_model, each in a file of its own: its options, and the function that makes it. The input is
// known to be valid and of the kind that the network takes. Parameters have the names that torchvision and GPT-2 give.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "isochron/core/options.h"
#include "isochron/model/model.h"

namespace isochron::model {

struct AlexNetOptions {
  std::int64_t width = 64;  // channels of the first convolution; all else grows with it
  double dropout = 0.5;

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_alexnet(const AlexNetOptions& options, const InputShape& input);

struct CnnOptions {
  std::int64_t width = 32;  // channels of the first convolution; all else grows with it
  bool batch_norm = false;

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_cnn(const CnnOptions& options, const InputShape& input);

struct Gpt2Options {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;  // a multiple of heads
  double dropout = 0.1;

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_gpt2(const Gpt2Options& options, const InputShape& input);

struct MlpOptions {
  std::int64_t hidden = 128;
  std::int64_t layers = 2;  // hidden ones; 0: a linear classifier

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_mlp(const MlpOptions& options, const InputShape& input);

struct ResNetOptions {
  std::int64_t width = 64;  // channels of the first stage; all else grows with it

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_resnet18(const ResNetOptions& options, const InputShape& input);
std::shared_ptr<Model> make_resnet50(const ResNetOptions& options, const InputShape& input);

struct VggOptions {
  std::int64_t width = 64;  // channels of the first convolution; all else grows with it
  bool batch_norm = false;
  double dropout = 0.5;

  void describe(OptionTable& table);
};
std::shared_ptr<Model> make_vgg11(const VggOptions& options, const InputShape& input);

// Throws isochron::Error if the file cannot be read, std::invalid_argument if what it holds cannot be trained.
std::shared_ptr<Model> make_script(const std::string& file, const InputShape& input);

}  // namespace isochron::model
