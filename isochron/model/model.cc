#include "isochron/model/model.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/options.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

using Make = std::shared_ptr<Model> (*)(OptionTable& table, const InputShape& input);

template <class Options, std::shared_ptr<Model> (*kMake)(const Options&, const InputShape&)>
std::shared_ptr<Model> make(OptionTable& table, const InputShape& input) {
  Options options;
  options.describe(table);
  table.finish();
  return kMake(options, input);
}

enum class Takes : std::uint8_t { kImages, kTokens };

struct Entry {
  std::string_view name;
  Takes takes = Takes::kImages;
  Make make;
};

// A network enters the program here, in alphabetical order.
constexpr auto kNetworks = std::to_array<Entry>({
    {.name = "alexnet", .make = make<AlexNetOptions, make_alexnet>},
    {.name = "cnn", .make = make<CnnOptions, make_cnn>},
    {.name = "gpt2", .takes = Takes::kTokens, .make = make<Gpt2Options, make_gpt2>},
    {.name = "mlp", .make = make<MlpOptions, make_mlp>},
    {.name = "resnet18", .make = make<ResNetOptions, make_resnet18>},
    {.name = "resnet50", .make = make<ResNetOptions, make_resnet50>},
    {.name = "vgg11", .make = make<VggOptions, make_vgg11>},
});

constexpr std::string_view kScript = "script:FILE";
constexpr std::string_view kScriptPrefix = kScript.substr(0, kScript.find(':') + 1);

constexpr auto kNames = [] {
  std::array<std::string_view, kNetworks.size() + 1> names;
  std::ranges::transform(kNetworks, names.begin(), &Entry::name);
  names.back() = kScript;
  return names;
}();

[[noreturn]] void refuse_name(std::string_view name) {
  refuse("model", in_quotes(name), joined({kNames.begin(), kNames.end()}, ", "));
}

const Entry& find(std::string_view name) {
  const auto* const entry = std::ranges::find(kNetworks, name, &Entry::name);
  if (entry == kNetworks.end()) {
    refuse_name(name);
  }
  return *entry;
}

void require_kind(const Entry& entry, const InputShape& input) {
  const auto name_of = [](Takes kind) { return kind == Takes::kTokens ? "tokens" : "images"; };
  const Takes given = input.context > 0 ? Takes::kTokens : Takes::kImages;
  if (entry.takes != given) {
    throw std::invalid_argument(
        "model " + std::string(entry.name) + ": the data is " + name_of(given) +
        "; permitted: " + name_of(entry.takes));
  }
}

}  // namespace

void InputShape::validate() const {
  require_at_least("channels", channels, 1);
  require_at_least("height", height, 1);
  require_at_least("width", width, 1);
  require_at_least("context", context, 0);
  require_at_least("classes", classes, 1);
}

std::shared_ptr<Model> make_model(const std::string& spec, const InputShape& input) {
  input.validate();
  if (spec.starts_with(kScriptPrefix)) {
    return make_script(spec.substr(kScriptPrefix.size()), input);
  }
  Specification specification = Specification::parse("model", spec);
  const Entry& entry = find(specification.name);
  require_kind(entry, input);
  OptionTable table(std::move(specification));
  return entry.make(table, input);
}

std::span<const std::string_view> model_names() {
  return kNames;
}

}  // namespace isochron::model
