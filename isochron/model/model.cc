#include "isochron/model/model.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "isochron/core/options.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

// Reads the options from the table; without an input that is all.
using Make = std::shared_ptr<Model> (*)(OptionTable& table, const InputShape* input);

template <class Options, std::shared_ptr<Model> (*kMake)(const Options&, const InputShape&)>
std::shared_ptr<Model> make(OptionTable& table, const InputShape* input) {
  Options options;
  options.describe(table);
  table.finish();
  return input == nullptr ? nullptr : kMake(options, *input);
}

enum class Takes : std::uint8_t { kImages, kTokens };

struct Entry {
  std::string_view name;
  std::string_view summary;
  Takes takes = Takes::kImages;
  Make make;
};

// A network enters the program here, in alphabetical order.
constexpr auto kNetworks = std::to_array<Entry>({
    {.name = "alexnet", .summary = "AlexNet (2014)", .make = make<AlexNetOptions, make_alexnet>},
    {.name = "cnn",
     .summary = "two convolutions and two linear layers, after LeNet-5",
     .make = make<CnnOptions, make_cnn>},
    {.name = "gpt2",
     .summary = "GPT-2, by default the small one",
     .takes = Takes::kTokens,
     .make = make<Gpt2Options, make_gpt2>},
    {.name = "mlp", .summary = "fully connected layers with ReLU", .make = make<MlpOptions, make_mlp>},
    {.name = "resnet18", .summary = "ResNet-18", .make = make<ResNetOptions, make_resnet18>},
    {.name = "resnet50", .summary = "ResNet-50", .make = make<ResNetOptions, make_resnet50>},
    {.name = "vgg11", .summary = "VGG-11", .make = make<VggOptions, make_vgg11>},
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
  std::string permitted;
  for (const std::string_view known : kNames) {
    permitted += (permitted.empty() ? "" : ", ") + std::string(known);
  }
  throw std::invalid_argument("model is '" + std::string(name) + "'; permitted: " + permitted);
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

void require_at_least(std::int64_t least, std::string_view name, std::int64_t value) {
  if (value < least) {
    throw std::invalid_argument(
        std::string(name) + " is " + std::to_string(value) + "; permitted: " + std::to_string(least) + " or more");
  }
}

}  // namespace

void InputShape::validate() const {
  require_at_least(1, "channels", channels);
  require_at_least(1, "height", height);
  require_at_least(1, "width", width);
  require_at_least(0, "context", context);
  require_at_least(1, "classes", classes);
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
  return entry.make(table, &input);
}

std::span<const std::string_view> model_names() {
  return kNames;
}

std::string model_help(std::string_view name) {
  if (name == kScript) {
    return "a TorchScript file that fits the data";
  }
  const Entry& entry = find(name);
  OptionTable table({.kind = "model", .name = std::string(name), .options = {}});
  (void)entry.make(table, nullptr);
  std::string line(entry.summary);
  for (const OptionTable::Row& row : table.rows()) {
    line += (&row == &table.rows().front() ? "; " : ", ") + row.name + "=" + row.standard;
  }
  return line;
}

}  // namespace isochron::model
