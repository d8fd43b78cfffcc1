// Any TorchScript file. Parameters and buffers are those of the script itself, so that optimizers, checkpoints and to()
// work on them as on any module's.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

class ScriptModel final : public Model {
 public:
  explicit ScriptModel(torch::jit::Module script) : script_(std::move(script)) { mirror(script_, *this); }

  torch::Tensor forward(const torch::Tensor& input) override {
    // The graph optimiser would put operations of its own in place of batch_norm, which then could not be made to use
    // the global batch. The setting is the thread's.
    const torch::jit::GraphOptimizerEnabledGuard unoptimised(false);
    torch::Tensor output = script_.forward({input}).toTensor();
    check_buffers();
    return output;
  }

  void train(bool on = true) override {
    Model::train(on);
    script_.train(on);
  }

 private:
  // Gives `module` the tree of `script`. A tensor that is there under several names counts once.
  void mirror(const torch::jit::Module& script, torch::nn::Module& module) {
    for (const auto& [name, tensor] : script.named_parameters(false)) {
      if (seen_.insert(tensor.unsafeGetTensorImpl()).second) {
        module.register_parameter(name, tensor, tensor.requires_grad());
      }
    }
    for (const auto& [name, tensor] : script.named_buffers(false)) {
      if (seen_.insert(tensor.unsafeGetTensorImpl()).second) {
        module.register_buffer(name, tensor);
      }
    }
    for (const auto& [name, child] : script.named_children()) {
      mirror(child, *module.register_module(name, std::make_shared<torch::nn::Module>()));
    }
  }

  // Ours would be stale otherwise, and so would checkpoints.
  void check_buffers() const {
    for (const auto& [name, tensor] : script_.named_buffers()) {
      if (!seen_.contains(tensor.unsafeGetTensorImpl())) {
        throw std::invalid_argument(
            "model script: forward() assigns a new tensor to buffer " + name + "; permitted: changes in place");
      }
    }
  }

  torch::jit::Module script_;
  std::unordered_set<const c10::TensorImpl*> seen_;
};

// Torch's words without its stack, which comes first.
std::string last_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

[[noreturn]] void refuse(const std::string& file, const std::string& reason) {
  throw std::invalid_argument(
      "model is 'script:" + file + "'; permitted: a TorchScript file, as torch.jit.save writes it (" + reason + ")");
}

std::string text_of(c10::IntArrayRef sizes) {
  return c10::str(sizes);
}

torch::Tensor blank(std::int64_t samples, const InputShape& input) {
  return input.context > 0 ? torch::zeros({samples, input.context}, torch::kLong)
                           : torch::zeros({samples, input.channels, input.height, input.width});
}

// Tries it out, so that a file that does not fit the data is refused before any work.
void check_fit(Model& model, const std::string& file, const InputShape& input) {
  constexpr std::int64_t kSamples = 2;
  const torch::NoGradGuard no_gradients;
  const torch::Tensor sample = blank(kSamples, input);
  const std::vector<std::int64_t> expected =
      input.context > 0 ? std::vector{kSamples, input.context, input.classes} : std::vector{kSamples, input.classes};
  torch::Tensor output;
  model.eval();
  try {
    output = model.forward(sample);
  } catch (const std::exception& error) {
    throw std::invalid_argument(
        "model script: " + file + " does not take an input of " + text_of(sample.sizes()) + ": " + last_line(error));
  }
  model.train();
  if (output.sizes() != expected) {
    throw std::invalid_argument(
        "model script: the output of " + file + " is " + text_of(output.sizes()) + "; permitted: " + text_of(expected));
  }
}

}  // namespace

std::shared_ptr<Model> make_script(const std::string& file, const InputShape& input) {
  if (!std::filesystem::is_regular_file(file)) {
    refuse(file, "there is no such file");
  }
  torch::jit::Module script;
  try {
    script = torch::jit::load(file, torch::kCPU);
  } catch (const std::exception& error) {
    const std::string reason = last_line(error);
    refuse(file, "LibTorch: " + reason.substr(0, reason.find(". ")));
  }
  auto model = std::make_shared<ScriptModel>(std::move(script));
  check_fit(*model, file, input);
  if (std::ranges::none_of(model->parameters(), &torch::Tensor::requires_grad)) {
    throw std::invalid_argument(
        "model script: " + file + " has no parameters to train; permitted: a module that was not frozen");
  }
  return model;
}

}  // namespace isochron::model
