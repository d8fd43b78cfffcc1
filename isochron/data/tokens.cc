#include "isochron/data/tokens.h"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "isochron/data/require.h"

namespace isochron::data {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are handed out as stored, in little-endian order");

constexpr std::int64_t kMaxContext = std::int64_t{1} << 20U;

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::unique_ptr<ByteSource> file, const TokenOptions& options)
      : file_(std::move(file)), options_(options), shape_{.element = options.element, .sizes = {options.context + 1}} {
    const std::int64_t token_bytes = shape_.bytes() / shape_.elements();
    const std::int64_t tokens = file_->size() / token_bytes;
    if (file_->size() % token_bytes != 0) {
      refuse(
          *file_,
          "it has " + std::to_string(file_->size()) + " bytes",
          "a multiple of the " + std::to_string(token_bytes) + " of a token");
    }
    if (tokens <= options.context) {
      refuse(*file_, "it has " + std::to_string(tokens) + " tokens", std::to_string(options.context + 1) + " or more");
    }
    size_ = (tokens - 1) / options.context;
    stride_bytes_ = options.context * token_bytes;
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return options_.vocabulary; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    file_->read(index * stride_bytes_, out);
    if (options_.element == Element::kUint16) {
      check_tokens<std::uint16_t>(index, out);
    } else {
      check_tokens<std::uint32_t>(index, out);
    }
    return kNoLabel;
  }

 private:
  template <class Token>
  void check_tokens(std::int64_t index, std::span<const std::byte> bytes) const {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Token)) {
      Token token = 0;
      std::memcpy(&token, &bytes[i], sizeof token);
      if (token >= options_.vocabulary) {
        const auto place = index * options_.context + static_cast<std::int64_t>(i / sizeof(Token));
        refuse(
            *file_,
            "token " + std::to_string(place) + " is " + std::to_string(token),
            "0 to " + std::to_string(options_.vocabulary - 1));
      }
    }
  }

  std::unique_ptr<ByteSource> file_;
  TokenOptions options_;
  SampleShape shape_;
  std::int64_t size_ = 0;
  std::int64_t stride_bytes_ = 0;
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
  return std::make_unique<TokenDataset>(std::move(file), options);
}

std::unique_ptr<Dataset> open_tokens(const std::filesystem::path& file, const TokenOptions& options) {
  return read_tokens(open_file(file), options);
}

}  // namespace isochron::data
