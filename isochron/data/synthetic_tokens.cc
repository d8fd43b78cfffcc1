#include "isochron/data/synthetic_tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron::data {
namespace {

// Purposes of the random streams of one seed.
constexpr std::uint64_t kChain = 1;
constexpr std::uint64_t kTokens = 2;
constexpr std::uint64_t kLengths = 3;

std::vector<std::int32_t> draw_lengths(const SyntheticTokenOptions& options) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(options.samples));
  Random random({options.seed, kLengths, options.stream});
  const auto most = static_cast<double>(options.context);
  for (std::int32_t& length : lengths) {
    length = static_cast<std::int32_t>(std::clamp(std::round(most / 4.0 * std::exp(0.8 * random.normal())), 1.0, most));
  }
  return lengths;
}

class SyntheticTokens final : public Dataset {
 public:
  explicit SyntheticTokens(const SyntheticTokenOptions& options)
      : options_(options), shape_{.element = Element::kUint16, .sizes = {options.context + 1}} {
    if (options.documents) {
      lengths_ = draw_lengths(options);
    }
  }

  [[nodiscard]] std::int64_t size() const override { return options_.samples; }
  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return options_.vocabulary; }

  [[nodiscard]] std::span<const std::int32_t> lengths() const override { return lengths_; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    Random random({options_.seed, kTokens, options_.stream, static_cast<std::uint64_t>(index)});
    std::uint64_t token = random.below(vocabulary());
    for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint16_t)) {
      const auto stored = static_cast<std::uint16_t>(token);
      std::memcpy(&out[i], &stored, sizeof stored);
      token = successor(token, random.next());
    }
    if (!lengths_.empty()) {
      const auto tokens = static_cast<std::size_t>(lengths_[static_cast<std::size_t>(index)]) + 1;
      std::ranges::fill(out.subspan(tokens * sizeof(std::uint16_t)), std::byte{0});
    }
    return kNoLabel;
  }

 private:
  [[nodiscard]] std::uint64_t vocabulary() const { return static_cast<std::uint64_t>(options_.vocabulary); }

  /// The successors of a token are four neighbours at a place of its own, so they are distinct.
  [[nodiscard]] std::uint64_t successor(std::uint64_t token, std::uint64_t word) const {
    // Leading zeros: none in half of the words, one in a quarter, two in an eighth, three or more in an eighth.
    const auto branch = static_cast<std::uint64_t>(std::min(std::countl_zero(word), 3));
    return (mix_key({options_.seed, kChain, token}) % vocabulary() + branch) % vocabulary();
  }

  SyntheticTokenOptions options_;
  SampleShape shape_;
  std::vector<std::int32_t> lengths_;  // of documents
};

}  // namespace

void SyntheticTokenOptions::validate() const {
  require_between("samples", samples, 1, std::int64_t{1} << (documents ? 32U : 53U));
  require_between("context", context, 1, std::int64_t{1} << 20U);
  require_between("vocabulary", vocabulary, 4, std::int64_t{1} << 16U);
}

std::unique_ptr<Dataset> synthetic_tokens(const SyntheticTokenOptions& options) {
  options.validate();
  return std::make_unique<SyntheticTokens>(options);
}

}  // namespace isochron::data
