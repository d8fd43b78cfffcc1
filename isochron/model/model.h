// The networks that Isochron knows by name, and any TorchScript file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <torch/nn/module.h>

namespace isochron::model {

struct Model : torch::nn::Module {
  // Images [b, channels, height, width] to logits [b, classes]; tokens [b, context] to logits [b, context, classes];
  // documents packed one behind the other, [1, tokens, 2] with a token and its place within its document, to logits
  // [1, tokens, classes].
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
};

// What the data looks like.
struct InputShape {
  std::int64_t channels = 1;  // of images
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t context = 0;   // tokens of a sample; 0: images
  std::int64_t classes = 10;  // or the vocabulary

  // Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

// `spec` is a name with options, "mlp:hidden=256,layers=2" or "gpt2:layers=4,heads=4,width=128", or "script:FILE".
// Throws std::invalid_argument naming what is not permitted: an unknown name or option, an input the network cannot
// take; isochron::Error if a file cannot be read. Parameters are drawn from torch's generator, on the CPU.
std::shared_ptr<Model> make_model(const std::string& spec, const InputShape& input);

// In alphabetical order, "script:FILE" last.
std::span<const std::string_view> model_names();

}  // namespace isochron::model
