// Token files for language models: little-endian integers of 16 or 32 bits, one after the other, no header.
//
// A sample is `context` + 1 consecutive tokens: the first `context` of them are the input, the last `context` the
// targets. Samples follow one another every `context` tokens, so each token is predicted once per epoch; what does not
// fill a sample at the end is left out. The file stays on disk; tokens are checked as they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "isochron/data/byte_source.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

struct TokenOptions {
  Element element = Element::kUint16;  // kUint16 or kUint32
  std::int64_t context = 256;          // tokens of input in a sample; 1 to 2^20
  std::int64_t vocabulary = 50257;     // tokens are 0 .. vocabulary - 1; 1 to 2^16 or 2^32

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

/// Throws std::invalid_argument naming the file, what was found and what is permitted: half a token at the end, fewer
/// tokens than one sample takes. read() throws it for a token that is not in the vocabulary.
std::unique_ptr<Dataset> read_tokens(std::unique_ptr<ByteSource> file, const TokenOptions& options);

/// The same from a file; throws isochron::Error if it cannot be read.
std::unique_ptr<Dataset> open_tokens(const std::filesystem::path& file, const TokenOptions& options);

}  // namespace isochron::data
