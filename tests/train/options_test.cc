#include "isochron/train/options.h"

#include <limits>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::train {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

/// What sensible options are refused with after `change`.
template <class Change>
std::string refusal(const Change& change) {
  Options options;
  options.job.global_batch = 64;
  change(options);
  try {
    options.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(TrainOptionsTest, AreFineAsTheyCome) {
  EXPECT_EQ(refusal([](Options&) {}), "");
}

TEST(TrainOptionsTest, NameWhatIsNotPermitted) {
  EXPECT_THAT(refusal([](Options& o) { o.job.policy = "best"; }), StartsWith("policy is 'best'; permitted: uniform"));
  EXPECT_THAT(refusal([](Options& o) { o.dataset = "imagenet"; }), StartsWith("dataset is 'imagenet'; permitted: "));
  EXPECT_EQ(refusal([](Options& o) { o.context = 0; }), "context is 0; permitted: a whole number from 1 to 1048576");
  EXPECT_EQ(
      refusal([](Options& o) { o.train_samples = -1; }),
      "train_samples is -1; permitted: a whole number from 0 to 1000000000");
  EXPECT_EQ(refusal([](Options& o) { o.epochs = 0; }), "epochs is 0; permitted: a whole number from 1 to 1000000000");
  EXPECT_EQ(refusal([](Options& o) { o.steps = -1; }), "steps is -1; permitted: a whole number from 0 to 1000000000");
  EXPECT_EQ(refusal([](Options& o) { o.optimizer = "lamb"; }), "optimizer is 'lamb'; permitted: sgd, adam, adamw");
  EXPECT_EQ(refusal([](Options& o) { o.learning_rate = 0.0; }), "learning_rate is 0; permitted: above 0");
  EXPECT_THAT(
      refusal([](Options& o) { o.learning_rate = std::numeric_limits<double>::infinity(); }),
      StartsWith("learning_rate is "));
  EXPECT_EQ(refusal([](Options& o) { o.momentum = 1.0; }), "momentum is 1; permitted: 0 or more, below 1");
  EXPECT_EQ(
      refusal([](Options& o) { o.weight_decay = -1.0; }), "weight_decay is -1; permitted: a finite number, 0 or more");
  EXPECT_THAT(refusal([](Options& o) { o.warmup = -1; }), StartsWith("warmup is -1; permitted: "));
  EXPECT_EQ(refusal([](Options& o) { o.threads = -1; }), "threads is -1; permitted: a whole number from 0 to 1024");
  EXPECT_EQ(refusal([](Options& o) { o.device = "tpu"; }), "device is 'tpu'; permitted: cpu, cuda, cuda:N, auto");
  EXPECT_EQ(refusal([](Options& o) { o.device = "cuda:x"; }), "device is 'cuda:x'; permitted: cpu, cuda, cuda:N, auto");
  EXPECT_THAT(
      refusal([](Options& o) { o.device = "cuda:99"; }),
      AnyOf(HasSubstr("GPUs here"), HasSubstr("permitted: cpu (this machine has no GPU")));
  EXPECT_EQ(refusal([](Options& o) { o.keep = 0; }), "keep is 0; permitted: a whole number from 1 to 1000000000");
}

TEST(TrainOptionsTest, DocumentsAreDealtByCostInStep) {
  const auto documents = [](Options& o) { o.lengths = SampleLengths::kDocuments; };
  EXPECT_EQ(refusal(documents), "");
  EXPECT_EQ(refusal([](Options& o) { o.cost = "count"; }), "cost is 'count'; permitted: with lengths documents");
  EXPECT_EQ(refusal([&](Options& o) { documents(o), o.cost = "count"; }), "");
  EXPECT_EQ(refusal([&](Options& o) { documents(o), o.cost = "attention:width=64"; }), "");
  EXPECT_EQ(
      refusal([&](Options& o) { documents(o), o.cost = "square"; }),
      "cost is 'square'; permitted: count, linear, attention, attention:width=WIDTH");
  EXPECT_EQ(
      refusal([&](Options& o) { documents(o), o.job.sync = Sync::kAsp; }),
      "lengths is 'documents' with sync asp; permitted: with sync bsp");
  EXPECT_THAT(refusal([&](Options& o) { documents(o), o.job.micro_batch = 8; }), StartsWith("micro_batch is 8"));
  EXPECT_EQ(refusal([&](Options& o) { documents(o), o.job.micro_batch = 8, o.collate = Collation::kPadded; }), "");
}

TEST(TrainOptionsTest, WantAFolderForCheckpoints) {
  EXPECT_EQ(
      refusal([](Options& o) { o.checkpoint_every = 5; }),
      "checkpoint_every is 5; permitted: with checkpoints, their folder");
  EXPECT_EQ(
      refusal([](Options& o) { o.resume = "auto"; }), "resume is auto; permitted: with checkpoints, their folder");
  EXPECT_EQ(refusal([](Options& o) { o.resume = "auto", o.checkpoints = "saved"; }), "");
}

}  // namespace
}  // namespace isochron::train
