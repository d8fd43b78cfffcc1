// Sequences of tokens made on the fly, with a known best loss.
//
// A Markov chain: each token is followed by one of four successors of its own, with probabilities 1/2, 1/4, 1/8 and
// 1/8. No model can predict better than 1.75 bits (1.213 nats) a token on average, and one that learns the successors
// gets there. A sample is a pure function of (seed, stream, index); O(context) time. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "isochron/data/dataset.h"

namespace isochron::data {

struct SyntheticTokenOptions {
  std::int64_t samples = 10'000;  // 1 to 2^53
  std::int64_t context = 64;      // 1 to 2^20; a sample has one token more, as in tokens.h
  bool documents = false;         // their lengths are log-normal: median context / 4, sigma 0.8, at most context
  std::int64_t vocabulary = 256;  // 4 to 65536
  std::uint64_t seed = 0;         // of the chain: training and test data share it
  std::uint64_t stream = 0;       // of the samples: training and test data differ in it

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

/// Tokens of 16 bits without labels.
std::unique_ptr<Dataset> synthetic_tokens(const SyntheticTokenOptions& options);

}  // namespace isochron::data
