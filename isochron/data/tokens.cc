#include "isochron/data/tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are handed out as stored, in little-endian order");

constexpr std::int64_t kMaxContext = std::int64_t{1} << 20U;

// What all datasets of a token file have in common: bytes of tokens from anywhere, checked.
class TokenFile {
 public:
  TokenFile(std::unique_ptr<ByteSource> file, const TokenOptions& options)
      : file_(std::move(file)), options_(options), token_bytes_(options.element == Element::kUint16 ? 2 : 4) {
    if (file_->size() % token_bytes_ != 0) {
      refuse(
          *file_,
          "it has " + std::to_string(file_->size()) + " bytes",
          "a multiple of the " + std::to_string(token_bytes_) + " of a token");
    }
  }

  [[nodiscard]] const ByteSource& source() const { return *file_; }
  [[nodiscard]] std::int64_t tokens() const { return file_->size() / token_bytes_; }
  [[nodiscard]] std::size_t bytes(std::int64_t tokens) const { return static_cast<std::size_t>(tokens * token_bytes_); }

  void read(std::int64_t first, std::span<std::byte> out) const {
    file_->read(first * token_bytes_, out);
    if (options_.element == Element::kUint16) {
      check<std::uint16_t>(first, out);
    } else {
      check<std::uint32_t>(first, out);
    }
  }

 private:
  template <class Token>
  void check(std::int64_t first, std::span<const std::byte> bytes) const {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Token)) {
      Token token = 0;
      std::memcpy(&token, &bytes[i], sizeof token);
      if (token >= options_.vocabulary) {
        const auto place = first + static_cast<std::int64_t>(i / sizeof(Token));
        refuse(
            *file_,
            "token " + std::to_string(place) + " is " + std::to_string(token),
            "0 to " + std::to_string(options_.vocabulary - 1));
      }
    }
  }

  std::unique_ptr<ByteSource> file_;
  TokenOptions options_;
  std::int64_t token_bytes_;
};

class TokenDataset : public Dataset {
 public:
  TokenDataset(std::unique_ptr<ByteSource> file, const TokenOptions& options)
      : file_(std::move(file), options),
        options_(options),
        shape_{.element = options.element, .sizes = {options.context + 1}} {}

  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return options_.vocabulary; }

 protected:
  [[nodiscard]] const TokenFile& file() const { return file_; }
  [[nodiscard]] std::int64_t context() const { return options_.context; }

 private:
  TokenFile file_;
  TokenOptions options_;
  SampleShape shape_;
};

class Windows final : public TokenDataset {
 public:
  Windows(std::unique_ptr<ByteSource> source, const TokenOptions& options) : TokenDataset(std::move(source), options) {
    const std::int64_t tokens = file().tokens();
    if (tokens <= context()) {
      refuse(
          file().source(), "it has " + std::to_string(tokens) + " tokens", std::to_string(context() + 1) + " or more");
    }
    size_ = (tokens - 1) / context();
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    file().read(index * context(), out);
    return kNoLabel;
  }

 private:
  std::int64_t size_ = 0;
};

// The numbers of an index, one after the other.
class Starts {
 public:
  explicit Starts(const ByteSource& source) : source_(source) {
    if (source.size() % kBytes != 0 || source.size() == 0) {
      refuse(source, "it has " + std::to_string(source.size()) + " bytes", "a multiple of 8, above 0");
    }
  }
  [[nodiscard]] std::int64_t size() const { return source_.size() / kBytes; }

  /// Throws unless it is above the one before and below `tokens`.
  std::int64_t next(std::int64_t tokens) {
    std::uint64_t start = 0;
    source_.read(kBytes * number_, std::as_writable_bytes(std::span(&start, 1)));
    const std::int64_t least = number_ == 0 ? 0 : last_ + 1;
    const std::int64_t most = number_ == 0 ? 0 : tokens - 1;
    if (start > static_cast<std::uint64_t>(std::max(most, std::int64_t{0})) ||
        static_cast<std::int64_t>(start) < least) {
      refuse(
          source_,
          "document " + std::to_string(number_) + " starts at token " + std::to_string(start),
          number_ == 0 ? "0" : std::to_string(least) + " to " + std::to_string(most));
    }
    ++number_;
    last_ = static_cast<std::int64_t>(start);
    return last_;
  }

 private:
  static constexpr std::int64_t kBytes = 8;
  const ByteSource& source_;
  std::int64_t number_ = 0;
  std::int64_t last_ = 0;
};

class Documents final : public TokenDataset {
 public:
  Documents(std::unique_ptr<ByteSource> source, const ByteSource& index, const TokenOptions& options)
      : TokenDataset(std::move(source), options) {
    const std::int64_t tokens = file().tokens();
    Starts starts(index);
    std::int64_t first = starts.next(tokens);
    for (std::int64_t number = 1; number <= starts.size(); ++number) {
      const std::int64_t end = number == starts.size() ? tokens : starts.next(tokens);
      add(first, end);
      first = end;
    }
    if (firsts_.empty()) {
      refuse(index, "no document has 2 tokens or more", "one or more that have");
    }
  }

  [[nodiscard]] std::int64_t size() const override { return std::ssize(firsts_); }
  [[nodiscard]] std::span<const std::int32_t> lengths() const override { return lengths_; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    const auto place = static_cast<std::size_t>(index);
    const std::size_t bytes = file().bytes(lengths_[place] + 1);
    file().read(firsts_[place], out.first(bytes));
    std::ranges::fill(out.subspan(bytes), std::byte{0});
    return kNoLabel;
  }

 private:
  void add(std::int64_t first, std::int64_t end) {
    while (first + 1 < end) {
      const std::int64_t length = std::min(end - first - 1, context());
      firsts_.push_back(first);
      lengths_.push_back(static_cast<std::int32_t>(length));
      first += length;
    }
  }

  std::vector<std::int64_t> firsts_;  // tokens
  std::vector<std::int32_t> lengths_;
};

}  // namespace

void TokenOptions::validate() const {
  const bool narrow = element == Element::kUint16;
  if (!narrow && element != Element::kUint32) {
    throw std::invalid_argument("element is of 1 byte; permitted: 2 or 4 bytes");
  }
  require_between("context", context, 1, kMaxContext);
  require_between("vocabulary", vocabulary, 1, std::int64_t{1} << (narrow ? 16U : 32U));
}

std::unique_ptr<Dataset> read_tokens(std::unique_ptr<ByteSource> file, const TokenOptions& options) {
  options.validate();
  return std::make_unique<Windows>(std::move(file), options);
}

std::unique_ptr<Dataset> read_documents(
    std::unique_ptr<ByteSource> file, const ByteSource& starts, const TokenOptions& options) {
  options.validate();
  return std::make_unique<Documents>(std::move(file), starts, options);
}

std::unique_ptr<Dataset> open_documents(
    const std::filesystem::path& file, const std::filesystem::path& starts, const TokenOptions& options) {
  return read_documents(open_file(file), *open_file(starts), options);
}

std::unique_ptr<Dataset> open_tokens(const std::filesystem::path& file, const TokenOptions& options) {
  return read_tokens(open_file(file), options);
}

}  // namespace isochron::data
