#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/policy/controller.h"
#include "isochron/core/policy/registry.h"
#include "isochron/core/worker.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

nb::list policies() {
  nb::list all;
  for (const PolicyHelp& help : policy_help()) {
    nb::list options;
    for (const OptionTable::Row& row : help.options) {
      nb::dict option;
      option["name"] = row.name;
      option["meaning"] = row.meaning;
      option["permitted"] = row.permitted;
      option["default"] = row.standard;
      options.append(option);
    }
    nb::dict policy;
    policy["name"] = help.name;
    policy["summary"] = help.summary;
    policy["options"] = options;
    all.append(policy);
  }
  return all;
}

void bind_worker(nb::module_& module) {
  nb::class_<Worker>(module, "Worker", "A worker as it describes itself to the others.")
      .def(
          "__init__",
          [](Worker* self,
             WorkerId id,
             std::string kind,
             double weight,
             std::int64_t min_batch,
             std::int64_t max_batch,
             std::int64_t granularity,
             std::string name) {
            new (self) Worker{
                .id = id,
                .kind = std::move(kind),
                .weight = weight,
                .min_batch = min_batch,
                .max_batch = max_batch,
                .granularity = granularity,
                .name = std::move(name)};
          },
          nb::arg("id"),
          nb::kw_only(),
          nb::arg("kind") = "cpu",
          nb::arg("weight") = 0.0,
          nb::arg("min_batch") = 1,
          nb::arg("max_batch").sig("NO_LIMIT") = kNoLimit,
          nb::arg("granularity") = 1,
          nb::arg("name") = "")
      .def_rw("id", &Worker::id)
      .def_rw("kind", &Worker::kind)
      .def_rw("weight", &Worker::weight)
      .def_rw("min_batch", &Worker::min_batch)
      .def_rw("max_batch", &Worker::max_batch)
      .def_rw("granularity", &Worker::granularity)
      .def_rw("name", &Worker::name);
}

void bind_decision(nb::module_& module) {
  nb::class_<Decision>(module, "Decision", "How the coming step is split, and why.")
      .def_ro("step", &Decision::step)
      .def_ro("batch_sizes", &Decision::batch_sizes)
      .def_ro("learning_rate_factor", &Decision::learning_rate_factor)
      .def_ro("changed", &Decision::changed)
      .def_prop_ro("reason", [](const Decision& self) { return std::string(to_string(self.reason)); })
      .def_ro("words", &Decision::words)
      .def("__repr__", [](const Decision& self) {
        std::string sizes;
        for (const std::int64_t size : self.batch_sizes) {
          sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
        }
        return "<Decision for step " + std::to_string(self.step) + ": batches [" + sizes + "], " +
               (self.words.empty() ? std::string(to_string(self.reason)) : self.words) + ">";
      });
}

}  // namespace

void bind_policy(nb::module_& module) {
  module.attr("NO_LIMIT") = kNoLimit;
  module.def("policies", &policies, "Every policy with its options.");
  bind_worker(module);
  bind_decision(module);
}

}  // namespace isochron::python
