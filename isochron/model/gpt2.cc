// GPT-2 (Radford et al. 2019): a decoder with normalisation before every part, learned positions, GELU in its tanh form
// and an output layer that shares the weights of the token embedding.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "isochron/model/document_groups.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

constexpr double kDeviation = 0.02;          // of the initial weights
constexpr double kPositionDeviation = 0.01;  // of the position embedding

torch::nn::Linear make_linear(std::int64_t from, std::int64_t to, double deviation) {
  torch::nn::Linear linear(from, to);
  torch::nn::init::normal_(linear->weight, 0.0, deviation);
  torch::nn::init::zeros_(linear->bias);
  return linear;
}

torch::nn::Embedding make_embedding(std::int64_t count, std::int64_t width, double deviation) {
  torch::nn::Embedding embedding(count, width);
  torch::nn::init::normal_(embedding->weight, 0.0, deviation);
  return embedding;
}

torch::nn::LayerNorm make_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// What two parts per layer add to the residual stream keeps its variance however many layers there are.
double residual_deviation(const Gpt2Options& options) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
}

class AttentionImpl final : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Gpt2Options& options)
      : heads_(options.heads),
        dropout_(options.dropout),
        input_(register_module("c_attn", make_linear(options.width, 3 * options.width, kDeviation))),
        output_(register_module("c_proj", make_linear(options.width, options.width, residual_deviation(options)))) {}

  // `documents`: null unless they are packed.
  torch::Tensor forward(const torch::Tensor& input, const DocumentGroups* documents) {
    const torch::Tensor split = input_->forward(input);
    const auto attend = [this](const torch::Tensor& sequences) { return mix(sequences); };
    return output_->forward(documents == nullptr ? mix(split) : documents->apply(split, attend));
  }

 private:
  // Queries, keys and values [b, length, 3 width] to [b, length, width].
  torch::Tensor mix(const torch::Tensor& sequences) {
    const auto split = sequences.chunk(3, -1);
    const auto by_head = [&](const torch::Tensor& x) { return x.unflatten(-1, {heads_, -1}).transpose(1, 2); };
    const torch::Tensor mixed = torch::scaled_dot_product_attention(
        by_head(split[0]),
        by_head(split[1]),
        by_head(split[2]),
        {},
        is_training() ? dropout_ : 0.0,
        /*is_causal=*/true);
    return mixed.transpose(1, 2).flatten(2);
  }

  std::int64_t heads_;
  double dropout_;
  torch::nn::Linear input_;
  torch::nn::Linear output_;
};
TORCH_MODULE(Attention);

class PerceptronImpl final : public torch::nn::Module {
 public:
  explicit PerceptronImpl(const Gpt2Options& options)
      : input_(register_module("c_fc", make_linear(options.width, 4 * options.width, kDeviation))),
        output_(register_module("c_proj", make_linear(4 * options.width, options.width, residual_deviation(options)))) {
  }

  torch::Tensor forward(const torch::Tensor& input) {
    return output_->forward(torch::gelu(input_->forward(input), "tanh"));
  }

 private:
  torch::nn::Linear input_;
  torch::nn::Linear output_;
};
TORCH_MODULE(Perceptron);

class TransformerBlockImpl final : public torch::nn::Module {
 public:
  explicit TransformerBlockImpl(const Gpt2Options& options)
      : attention_norm_(register_module("ln_1", make_norm(options.width))),
        attention_(register_module("attn", Attention(options))),
        feed_forward_norm_(register_module("ln_2", make_norm(options.width))),
        feed_forward_(register_module("mlp", Perceptron(options))),
        dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))) {}

  torch::Tensor forward(const torch::Tensor& input, const DocumentGroups* documents) {
    const torch::Tensor mixed =
        input + dropout_->forward(attention_->forward(attention_norm_->forward(input), documents));
    return mixed + dropout_->forward(feed_forward_->forward(feed_forward_norm_->forward(mixed)));
  }

 private:
  torch::nn::LayerNorm attention_norm_;
  Attention attention_;
  torch::nn::LayerNorm feed_forward_norm_;
  Perceptron feed_forward_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(TransformerBlock);

class Gpt2 final : public Model {
 public:
  Gpt2(const Gpt2Options& options, const InputShape& input)
      : tokens_(register_module("wte", make_embedding(input.classes, options.width, kDeviation))),
        positions_(register_module("wpe", make_embedding(input.context, options.width, kPositionDeviation))),
        dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))),
        blocks_(register_module("h", torch::nn::Sequential())),
        norm_(register_module("ln_f", make_norm(options.width))) {
    for (std::int64_t layer = 0; layer < options.layers; ++layer) {
      blocks_->push_back(TransformerBlock(options));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    if (input.dim() == 3) {
      const torch::Tensor places = input.select(-1, 1);
      const DocumentGroups documents(places[0]);
      return compute(input.select(-1, 0), places, &documents);
    }
    return compute(input, torch::arange(input.size(1), input.options()), nullptr);
  }

 private:
  torch::Tensor compute(const torch::Tensor& tokens, const torch::Tensor& places, const DocumentGroups* documents) {
    torch::Tensor state = dropout_->forward(tokens_->forward(tokens) + positions_->forward(places));
    for (const torch::nn::AnyModule& block : *blocks_) {
      state = block.get<TransformerBlock>()->forward(state, documents);
    }
    return torch::linear(norm_->forward(state), tokens_->weight);
  }

  torch::nn::Embedding tokens_;
  torch::nn::Embedding positions_;
  torch::nn::Dropout dropout_;
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_;
};

}  // namespace

void Gpt2Options::describe(OptionTable& table) {
  table.integer("layers", layers, 1, 1'000, "blocks of attention and feed-forward");
  table.integer("heads", heads, 1, 1'024, "of attention");
  table.integer("width", width, 1, 65'536, "of the embedding, a multiple of heads");
  table.number("dropout", dropout, 0.0, 0.99, "of embeddings, attention and residual parts");
}

std::shared_ptr<Model> make_gpt2(const Gpt2Options& options, const InputShape& input) {
  if (options.width % options.heads != 0) {
    throw std::invalid_argument(
        "model gpt2: width is " + std::to_string(options.width) + "; permitted: multiples of heads, " +
        std::to_string(options.heads));
  }
  return std::make_shared<Gpt2>(options, input);
}

}  // namespace isochron::model
