#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/dispatch/dispatcher.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/sample/claims.h"
#include "isochron/core/staleness/clock_table.h"
#include "isochron/python/bind.h"
#include "isochron/python/make_controller.h"
#include "isochron/python/state_bytes.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

void bind_order(nb::module_& module) {
  nb::class_<WorkOrder>(module, "WorkOrder", "Which samples a worker computes next.")
      .def_ro("worker", &WorkOrder::worker)
      .def_prop_ro("first", [](const WorkOrder& self) { return self.positions.first; })
      .def_prop_ro("last", [](const WorkOrder& self) { return self.positions.last; })
      .def_ro("iteration", &WorkOrder::iteration)
      .def_ro("lead", &WorkOrder::lead)
      .def_ro("round_samples", &WorkOrder::round_samples);
}

void bind_making(nb::class_<Dispatcher>& dispatcher) {
  dispatcher.def(
      "__init__",
      [](Dispatcher* self,
         std::vector<Worker> workers,
         std::int64_t global_batch,
         std::optional<std::int64_t> bound,
         std::int64_t position,
         const nb::bytes& state,
         std::string policy,
         const std::string& rate,
         std::int64_t reference_batch,
         double warmup_steps) {
        Controller controller =
            make_controller(std::move(workers), global_batch, std::move(policy), rate, reference_batch, warmup_steps);
        if (state.size() > 0) {
          controller.restore(from_bytes(state));
        }
        new (self) Dispatcher(std::move(controller), bound, ClaimPool(position));
      },
      nb::arg("workers"),
      nb::arg("global_batch"),
      nb::kw_only(),
      nb::arg("bound").none(),
      nb::arg("position") = 0,
      nb::arg("state") = nb::bytes("", 0),
      nb::arg("policy") = "isochron",
      nb::arg("rate") = "none",
      nb::arg("reference_batch") = 0,
      nb::arg("warmup_steps") = 0.0);
}

void bind_working(nb::class_<Dispatcher>& dispatcher) {
  dispatcher.def("open", &Dispatcher::open, nb::arg("end"))
      .def("close", &Dispatcher::close)
      .def("begin", [](Dispatcher& self) { self.begin(ClaimPool()); })
      .def("ask", &Dispatcher::ask, nb::arg("worker"))
      .def("take_orders", &Dispatcher::take_orders)
      .def(
          "finish",
          [](Dispatcher& self, WorkerId worker, std::int64_t batch, double seconds, double cpu, double memory) {
            const Interval used = self.finish(
                worker, {.worker = worker, .batch = batch, .seconds = seconds, .cpu = cpu, .memory = memory});
            return std::pair(used.first, used.last);
          },
          nb::arg("worker"),
          nb::arg("batch"),
          nb::arg("seconds"),
          nb::arg("cpu"),
          nb::arg("memory"))
      .def("dismiss", &Dispatcher::dismiss)
      .def_prop_ro("meeting", &Dispatcher::meeting)
      .def_prop_ro("position", [](const Dispatcher& self) { return self.claims().next(); })
      .def_prop_ro("slowest", [](const Dispatcher& self) { return self.clocks().slowest(); })
      .def_prop_ro(
          "decision", [](const Dispatcher& self) { return self.controller().decision(); }, nb::rv_policy::move)
      .def("state", [](const Dispatcher& self) { return to_bytes(self.controller().state()); });
}

void bind_clocks(nb::module_& module) {
  nb::class_<ClockTable>(module, "ClockTable", "Who has seen which updates.")
      .def("__init__", [](ClockTable* self) { new (self) ClockTable(std::nullopt); })
      .def("join", &ClockTable::join, nb::arg("worker"))
      .def("pull", &ClockTable::pull, nb::arg("worker"))
      .def("push", &ClockTable::push, nb::arg("worker"));
}

}  // namespace

void bind_dispatch(nb::module_& module) {
  bind_order(module);
  nb::class_<Dispatcher> dispatcher(module, "Dispatcher", "Asynchronous training as a pure state machine.");
  bind_making(dispatcher);
  bind_working(dispatcher);
  bind_clocks(module);
  module.def(
      "push_factor",
      [](const std::string& rule,
         std::int64_t batch,
         std::int64_t global_batch,
         std::int64_t workers,
         std::int64_t staleness) {
        return push_factor(parse_push_rate(rule), batch, global_batch, workers, staleness);
      },
      nb::arg("rule"),
      nb::kw_only(),
      nb::arg("batch") = 1,
      nb::arg("global_batch") = 1,
      nb::arg("workers") = 1,
      nb::arg("staleness") = 0,
      "What an update's learning rate is multiplied with.");
  module.def(
      "asynchronous_momentum",
      &asynchronous_momentum,
      nb::arg("momentum"),
      nb::arg("workers"),
      "The momentum that together with what asynchronous workers add is the one that was asked for.");
}

}  // namespace isochron::python
