// The ranges that a training loop runs over (see job.h), and how samples become tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "isochron/core/deal/cost.h"
#include "isochron/core/deal/deal.h"
#include "isochron/data/augment.h"

namespace isochron {

class Job;

// Images: data [b, channels, height, width] and target [b]. Tokens: both [b, context]. Documents, which are of unequal
// length: padded, both [b, longest], with kNoTarget where there is no token to predict; packed one behind the other,
// data [1, tokens, 2], a token and its place within its document, and target [1, tokens]. A worker whose share of a
// last, short step is empty gets samples that count for nothing, so that every model can compute it.
struct Batch {
  at::Tensor data;
  at::Tensor target;
};

// The target that cross_entropy_loss() leaves out.
inline constexpr std::int64_t kNoTarget = -100;

struct LoaderOptions {
  // For images; its seed is the job's. None: pixels as 0 .. 1.
  std::optional<data::AugmentOptions> augment;
  // For samples of unequal length (Dataset::lengths), of whose losses the job then takes the mean over all tokens of
  // the step. None: shares are numbers of samples; else every step is dealt by cost (core/deal).
  std::optional<LengthCost> cost = LengthCost{};
  Collation collation = Collation::kPacked;
  // Tells two datasets of one kind and size apart, which count as the same data otherwise.
  std::string name;
  // With sync kLocal a worker may have no samples of a round. Its loop never sees that one; with this it gets an empty
  // batch (data is undefined, there is nothing to compute) once such a round is over, so that all loops may do what is
  // for all workers after the same rounds.
  bool empty_rounds = false;
};

class Epochs;

// What is left of the epoch of one of the job's datasets, an input range: every advance finishes a step and begins the
// next. Iterated again it gives the next epoch, or what is left of one that was not finished.
class Loader {
 public:
  Loader(Job& job, std::size_t data) : job_(&job), data_(data) {}

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    explicit Iterator(Job& job) : job_(&job) { begin_step(); }
    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return job_ == nullptr; }

   private:
    void begin_step();

    Job* job_ = nullptr;  // null at the end
    Batch batch_;
  };

  Iterator begin();
  std::default_sentinel_t end() const { return std::default_sentinel; }
  // As Job::epochs(), of this loader's dataset.
  Epochs epochs(std::int64_t count);

 private:
  Job* job_;
  std::size_t data_;
};

class Epochs {
 public:
  // The epochs are those of the dataset that is being trained on, or of the one with this number.
  Epochs(Job& job, std::int64_t count, std::optional<std::size_t> data = std::nullopt)
      : job_(&job), count_(count), data_(data) {}

  class Iterator {
   public:
    using value_type = std::int64_t;
    using difference_type = std::ptrdiff_t;

    Iterator(Job& job, std::int64_t count, std::optional<std::size_t> data) : job_(&job), count_(count), data_(data) {}
    std::int64_t operator*() const;
    Iterator& operator++() { return *this; }  // the loader moves the job
    void operator++(int) {}
    bool operator==(std::default_sentinel_t) const;

   private:
    Job* job_;
    std::int64_t count_;
    std::optional<std::size_t> data_;
  };

  Iterator begin() { return {*job_, count_, data_}; }
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  Job* job_;
  std::int64_t count_;
  std::optional<std::size_t> data_;
};

}  // namespace isochron
