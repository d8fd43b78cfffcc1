#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/policy/controller.h"
#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/core/policy/registry.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"
#include "isochron/python/bind.h"
#include "isochron/python/make_controller.h"
#include "isochron/python/state_bytes.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

Worker make_worker(
    WorkerId id,
    std::string kind,
    double weight,
    std::int64_t min_batch,
    std::int64_t max_batch,
    std::int64_t granularity,
    std::string name) {
  return {
      .id = id,
      .kind = std::move(kind),
      .weight = weight,
      .min_batch = min_batch,
      .max_batch = max_batch,
      .granularity = granularity,
      .name = std::move(name)};
}

// One list per kind of reading, all of them in the order of `workers`.
StepTelemetry make_telemetry(
    std::int64_t step,
    const std::vector<WorkerId>& workers,
    const std::vector<std::int64_t>& batches,
    const std::vector<double>& seconds,
    const std::vector<double>& cpu,
    const std::vector<double>& memory,
    std::int64_t sync_points) {
  const std::size_t count = workers.size();
  if (batches.size() != count || seconds.size() != count || cpu.size() != count || memory.size() != count) {
    throw std::invalid_argument(
        "the readings are of unequal lengths; permitted: one of each for every worker, " + std::to_string(count));
  }
  StepTelemetry telemetry{.step = step};
  for (std::size_t k = 0; k < count; ++k) {
    telemetry.workers.push_back(
        {.worker = workers[k],
         .batch = batches[k],
         .seconds = seconds[k],
         .usage = {.cpu = cpu[k], .memory = memory[k]},
         .sync_points = sync_points});
  }
  return telemetry;
}

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
            new (self)
                Worker(make_worker(id, std::move(kind), weight, min_batch, max_batch, granularity, std::move(name)));
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
      .def_ro("repaired", &Decision::repaired)
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

void bind_controller(nb::module_& module) {
  nb::class_<Controller>(module, "Controller", "Every worker holds one, feeds it the same and gets the same decision.")
      .def(
          "__init__",
          [](Controller* self,
             std::vector<Worker> workers,
             std::int64_t global_batch,
             std::string policy,
             const std::string& rate,
             std::int64_t reference_batch,
             double warmup_steps) {
            new (self) Controller(make_controller(
                std::move(workers), global_batch, std::move(policy), rate, reference_batch, warmup_steps));
          },
          nb::arg("workers"),
          nb::arg("global_batch"),
          nb::kw_only(),
          nb::arg("policy") = "isochron",
          nb::arg("rate") = "none",
          nb::arg("reference_batch") = 0,
          nb::arg("warmup_steps") = 0.0)
      // Copies: a decision that somebody keeps must not change afterwards.
      .def_prop_ro(
          "decision", [](const Controller& self) { return self.decision(); }, nb::rv_policy::move)
      .def_prop_ro("workers", [](const Controller& self) { return self.roster().workers; })
      .def_prop_ro("global_batch", [](const Controller& self) { return self.roster().global_batch; })
      .def(
          "observe",
          [](Controller& self,
             std::int64_t step,
             const std::vector<WorkerId>& workers,
             const std::vector<std::int64_t>& batches,
             const std::vector<double>& seconds,
             const std::vector<double>& cpu,
             const std::vector<double>& memory,
             std::int64_t sync_points) {
            self.observe(make_telemetry(step, workers, batches, seconds, cpu, memory, sync_points));
          },
          nb::arg("step"),
          nb::arg("workers"),
          nb::arg("batches"),
          nb::arg("seconds"),
          nb::arg("cpu"),
          nb::arg("memory"),
          nb::arg("sync_points") = 1)
      .def(
          "change_workers",
          [](Controller& self, std::vector<Worker> workers) { self.change_workers(std::move(workers)); },
          nb::arg("workers"))
      .def("state", [](const Controller& self) { return to_bytes(self.state()); })
      .def("restore", [](Controller& self, const nb::bytes& state) { self.restore(from_bytes(state)); });
}

void bind_ceilings(nb::module_& module) {
  nb::class_<MemoryCeilings>(module, "MemoryCeilings", "The batches at which workers ran out of memory.")
      .def(nb::init<>())
      .def("failed", &MemoryCeilings::failed, nb::arg("worker"), nb::arg("batch"), nb::arg("step"))
      .def("forget", &MemoryCeilings::forget, nb::arg("worker"))
      .def("give_up", &MemoryCeilings::give_up, nb::arg("step"))
      .def("raise_due", &MemoryCeilings::raise, nb::arg("step"), nb::arg("highest"))
      .def("limit", &MemoryCeilings::limit, nb::arg("worker"), nb::arg("least"), nb::arg("limit"))
      .def("state", [](MemoryCeilings& self) { return to_bytes(save_state(self)); })
      .def("restore", [](MemoryCeilings& self, const nb::bytes& state) { restore_state(self, from_bytes(state)); });
}

}  // namespace

void bind_policy(nb::module_& module) {
  module.attr("NO_LIMIT") = kNoLimit;
  module.def("policies", &policies, "Every policy with its options.");
  bind_worker(module);
  bind_decision(module);
  bind_controller(module);
  bind_ceilings(module);
}

}  // namespace isochron::python
