#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/model/model.h"

namespace isochron::model {
namespace {

constexpr InputShape kText{.context = 8, .classes = 30};

TEST(Gpt2Test, DoesNotSeeLaterTokens) {
  torch::manual_seed(1);
  const auto model = make_model("gpt2:layers=2,heads=4,width=32", kText);
  model->eval();
  const torch::NoGradGuard no_gradients;
  const torch::Tensor tokens = torch::randint(kText.classes, {2, kText.context}, torch::kLong);
  torch::Tensor changed = tokens.clone();
  changed.select(1, 5) = (changed.select(1, 5) + 1) % kText.classes;
  const torch::Tensor difference = (model->forward(tokens) - model->forward(changed)).abs().amax({0, 2});
  EXPECT_LT(difference.slice(0, 0, 5).max().item<double>(), 1e-6);
  EXPECT_GT(difference.slice(0, 5).min().item<double>(), 1e-4);
}

TEST(Gpt2Test, PackedDocumentsSeeThemselvesAlone) {
  // Lengths that are brought together in several groups, in no order.
  torch::manual_seed(1);
  const auto model = make_model("gpt2:layers=2,heads=4,width=32", kText);
  model->eval();
  const torch::NoGradGuard no_gradients;
  std::vector<torch::Tensor> tokens;
  std::vector<torch::Tensor> places;
  std::vector<torch::Tensor> alone;
  for (const std::int64_t length : {3, 8, 1, 2, 7, 5, 1, 8}) {
    tokens.push_back(torch::randint(kText.classes, {length}, torch::kLong));
    places.push_back(torch::arange(length));
    alone.push_back(model->forward(tokens.back().unsqueeze(0)));
  }
  const torch::Tensor packed = torch::stack({torch::cat(tokens), torch::cat(places)}, -1).unsqueeze(0);
  const torch::Tensor logits = model->forward(packed);
  ASSERT_EQ(logits.sizes(), torch::cat(alone, 1).sizes());
  EXPECT_LT((logits - torch::cat(alone, 1)).abs().max().item<double>(), 1e-5);
}

TEST(Gpt2Test, TellsPositionsApart) {
  torch::manual_seed(1);
  const auto model = make_model("gpt2:layers=1,heads=1,width=32", kText);
  model->eval();
  const torch::NoGradGuard no_gradients;
  const torch::Tensor logits = model->forward(torch::zeros({1, kText.context}, torch::kLong));
  EXPECT_GT((logits.select(1, 0) - logits.select(1, 7)).abs().max().item<double>(), 1e-4);
  EXPECT_EQ(model->forward(torch::zeros({1, 3}, torch::kLong)).size(1), 3);
}

TEST(Gpt2Test, BeginsAsTheOriginalDoes) {
  // 0.02 for weights, 0.01 for positions, 0.02 / sqrt(2 x 8 layers) = 0.005 for what is added to the residual stream.
  // Over at least 8 x 64 = 512 numbers an estimate is within 5 / sqrt(2 x 512) = 16 %.
  torch::manual_seed(1);
  const auto parameters = make_model("gpt2:layers=8,heads=2,width=64", kText)->named_parameters();
  const auto deviation = [&](const std::string& name) { return parameters[name].std().item<double>(); };
  EXPECT_NEAR(deviation("wte.weight"), 0.02, 0.0032);
  EXPECT_NEAR(deviation("wpe.weight"), 0.01, 0.0016);
  EXPECT_NEAR(deviation("h.3.attn.c_attn.weight"), 0.02, 0.0032);
  EXPECT_NEAR(deviation("h.3.attn.c_proj.weight"), 0.005, 0.0008);
  EXPECT_NEAR(deviation("h.7.mlp.c_proj.weight"), 0.005, 0.0008);
  EXPECT_EQ(parameters["h.3.attn.c_attn.bias"].abs().max().item<double>(), 0.0);
}

}  // namespace
}  // namespace isochron::model
