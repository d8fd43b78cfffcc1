// Token files for language models: little-endian integers of 16 or 32 bits, one after the other, no header.
//
// A sample is `context` + 1 consecutive tokens: the first `context` of them are the input, the last `context` the
// targets. Samples follow one another every `context` tokens, so each token is predicted once per epoch; what does not
// fill a sample at the end is left out. The file stays on disk; tokens are checked as they are read.
//
// With an index of its documents, which are numbers of 64 bits, little-endian: the tokens at which documents start,
// from 0 on, increasing: a sample is a document, or a part of one that is longer than context + 1, of which again every
// token but its first is predicted once. Samples are of unequal length then (Dataset::lengths). A document of one token
// has nothing to predict and is left out. 16 bytes of memory a document.
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

/// The documents of such a file. Throws likewise, also for an index that does not begin with 0, does not increase or
/// leaves the file.
std::unique_ptr<Dataset> read_documents(
    std::unique_ptr<ByteSource> file, const ByteSource& starts, const TokenOptions& options);

/// The same from files; throws isochron::Error if one cannot be read.
std::unique_ptr<Dataset> open_documents(
    const std::filesystem::path& file, const std::filesystem::path& starts, const TokenOptions& options);
std::unique_ptr<Dataset> open_tokens(const std::filesystem::path& file, const TokenOptions& options);

}  // namespace isochron::data
