#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/replica/step_report.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/trace/run_meter.h"
#include "isochron/core/trace/share_gain.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

/// What a run achieved and what its shares gain.
struct Meter {
  RunMeter meter;
  ShareGain gain;
};

}  // namespace

void bind_gain(nb::module_& module) {
  nb::class_<Meter>(module, "Meter", "What a run achieved, from the records of its steps; NaN where nothing says.")
      .def(
          "__init__",
          [](Meter* self, std::int64_t global_batch, const std::vector<Worker>& workers) {
            new (self) Meter{.meter = {}, .gain = {global_batch, members_of(workers)}};
          },
          nb::arg("global_batch"),
          nb::arg("workers"))
      .def(
          "add",
          [](Meter& self, const StepRecord& record) {
            self.meter.add(record);
            self.gain.add(record);
          },
          nb::arg("record"))
      .def(
          "add", [](Meter& self, const UpdateRecord& record) { self.meter.add(record); }, nb::arg("record"))
      .def(
          "add", [](Meter& self, const EventRecord& record) { self.meter.add(record); }, nb::arg("record"))
      .def(
          "set_fixed_share",
          [](Meter& self, WorkerId worker, double share) { self.gain.set_fixed_share(worker, share); },
          nb::arg("worker"),
          nb::arg("share"),
          "The share of the worker's time that does not depend on its batch.")
      .def_prop_ro("steps", [](const Meter& self) { return self.meter.steps(); })
      .def_prop_ro("seconds", [](const Meter& self) { return self.meter.seconds(); })
      .def_prop_ro("samples_per_second", [](const Meter& self) { return self.meter.samples_per_second(); })
      .def_prop_ro(
          "last_samples_per_second",
          [](const Meter& self) { return self.meter.last().samples_per_second; },
          "All workers' by the last record; after an update each is as fast as in its last iteration.")
      .def_prop_ro("balance", [](const Meter& self) { return self.meter.balance(); })
      .def_prop_ro(
          "over_equal_shares",
          [](const Meter& self) { return self.gain.estimate().now; },
          "How many times as fast the run is as with equal shares, by its last steps.")
      .def_prop_ro(
          "best_over_equal_shares",
          [](const Meter& self) { return self.gain.estimate().best; },
          "The same with the best split of the batch.");
  module.def(
      "step_record",
      [](const std::vector<StepReport>& reports,
         const std::vector<Worker>& workers,
         std::int64_t step,
         double finished,
         double now) {
        Decision equal_shares;
        equal_shares.step = step;
        equal_shares.reason = Reason::kKept;
        return make_record(reports, workers, equal_shares, {.epoch = -1, .position = -1}, finished, now);
      },
      nb::arg("reports"),
      nb::arg("workers"),
      nb::arg("step"),
      nb::arg("finished"),
      nb::arg("now"),
      "The record of a step that no job has planned, from what all workers report of it.");
}

}  // namespace isochron::python
