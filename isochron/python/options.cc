#include <array>
#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/error.h"
#include "isochron/core/job_settings.h"
#include "isochron/core/replica/introduction.h"
#include "isochron/io/former_run_file.h"
#include "isochron/io/process_usage.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using Type = Option::Type;

Framework parse_framework(const std::string& name) {
  static constexpr Names<Framework, 3> kNames{
      {{Framework::kNative, "native"}, {Framework::kTorch, "torch"}, {Framework::kTensorFlow, "tensorflow"}}};
  return parse_name(kNames, "framework", name);
}

/// The value as Python has it.
nb::object to_python(const Option& option, const std::string& text) {
  switch (option.type) {
    case Type::kInteger:
    case Type::kSize:
      return nb::steal(PyLong_FromString(text.c_str(), nullptr, 10));
    case Type::kNumber:
      return nb::float_(std::stod(text));
    case Type::kFlag:
      return nb::bool_(text == "true");
    case Type::kChoice:
    case Type::kText:
      break;
  }
  return nb::str(text.c_str());
}

/// Whether Python's value is of the option's type: a text is no number, and True is none either.
bool fits(const Option& option, nb::handle value) {
  const bool flag = nb::isinstance<nb::bool_>(value);
  const bool whole = nb::isinstance<nb::int_>(value) && !flag;
  switch (option.type) {
    case Type::kInteger:
    case Type::kSize:
      return whole;
    case Type::kNumber:
      return whole || nb::isinstance<nb::float_>(value);
    case Type::kFlag:
      return flag;
    case Type::kChoice:
    case Type::kText:
      break;
  }
  return nb::isinstance<nb::str>(value);
}

std::string text_of(const Option& option, nb::handle value) {
  if (option.type == Type::kFlag) {
    return nb::cast<bool>(value) ? "true" : "false";
  }
  return nb::str(value).c_str();
}

JobOption find(JobSettings& settings, const std::string& name) {
  const std::vector<JobOption> options = job_options(settings);
  const JobOption* const option = find_option(options, name);
  if (option == nullptr) {
    throw nb::attribute_error(("a job has no option '" + name + "'").c_str());
  }
  return *option;
}

void set(JobSettings& self, const std::string& name, nb::handle value) {
  const JobOption option = find(self, name);
  if (!fits(option, value) || !option.set(text_of(option, value))) {
    const std::string permitted = option.type == Type::kFlag ? "True, False" : option.permitted;
    refuse(option.name, std::string_view(nb::repr(value).c_str()), permitted);
  }
}

constexpr std::array<std::pair<const char*, JobOptionTraits>, 3> kTakers{
    {{"command_line", kCommandLine}, {"torch", kTorch}, {"tensorflow", kTensorFlow}}};

/// Who takes an option is in it by name, and what of its choices each may take.
nb::dict row(const JobOption& option) {
  nb::dict row;
  row["name"] = option.name;
  row["type"] = to_python(option, option.standard).type().attr("__name__");
  row["default"] = to_python(option, option.standard);
  row["permitted"] = option.permitted;
  row["meaning"] = option.meaning;
  row["group"] = option.group;
  row["aliases"] = option.aliases;
  nb::dict choices;
  for (const auto& [name, taker] : kTakers) {
    row[name] = option.is(taker);
    choices[name] = option.choices_of(taker);
  }
  row["choices"] = choices;
  row["agreed"] = option.is(kAgreed);
  row["checkpointed"] = option.is(kCheckpointed);
  return row;
}

}  // namespace

void bind_options(nb::module_& module) {
  nb::class_<JobSettings>(module, "JobSettings", "The options of a job; job_options() lists them.")
      .def(
          "__init__",
          [](JobSettings* self, const nb::kwargs& options) {
            new (self) JobSettings();
            for (const auto& [name, value] : options) {
              set(*self, nb::cast<std::string>(name), value);
            }
          },
          nb::arg("options"))
      .def("set", &set, nb::arg("name"), nb::arg("value").none())
      .def(
          "get",
          [](JobSettings& self, const std::string& name) {
            const JobOption option = find(self, name);
            return to_python(option, option.get());
          },
          nb::arg("name"))
      .def(
          "validate",
          [](const JobSettings& self, const std::string& framework) { validate(self, parse_framework(framework)); },
          nb::arg("framework"))
      .def(
          "introduction",
          [](const JobSettings& self, const std::string& device, bool first) {
            Introduction introduction = Introduction::of(self, ISOCHRON_VERSION, device, io::host_name());
            io::add_former_run(introduction, self, first);
            return introduction;
          },
          nb::arg("device"),
          nb::arg("first") = false,
          "How this worker, the first of all or another one, introduces itself to the others.");
  module.def("job_options", [] {
    JobSettings settings;
    nb::list rows;
    for (const JobOption& option : job_options(settings)) {
      rows.append(row(option));
    }
    return rows;
  });
}

}  // namespace isochron::python
