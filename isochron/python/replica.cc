#include "isochron/core/replica/replica.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "isochron/python/bind.h"
#include "isochron/python/state_bytes.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;
using Reports = std::vector<StepReport>;

Pair to_pair(const Interval& interval) {
  return {interval.first, interval.last};
}

std::vector<Pair> to_pairs(const std::vector<Interval>& intervals) {
  std::vector<Pair> pairs;
  pairs.reserve(intervals.size());
  for (const Interval& interval : intervals) {
    pairs.push_back(to_pair(interval));
  }
  return pairs;
}

void bind_state(nb::module_& module) {
  nb::class_<State>(module, "State", "What a replica, a ledger or a controller has saved, field by field.")
      .def(
          "__init__",
          [](State* self, const nb::bytes& saved) { new (self) State(from_bytes(saved)); },
          nb::arg("saved"))
      .def("part", &State::part, nb::arg("name"), "The fields whose names begin with `name` and a dot, without that.")
      .def("put", &State::put, nb::arg("name"), nb::arg("part"), "Puts the part in the place of these fields.")
      .def(
          "number",
          [](const State& self, const std::string& name) { return self.numbers.at(name).at(0); },
          nb::arg("name"))
      .def(
          "set",
          [](State& self, const std::string& name, double value) { self.numbers[name] = {value}; },
          nb::arg("name"),
          nb::arg("value"))
      .def(
          "set",
          [](State& self, const std::string& name, const std::string& value) { self.words[name] = value; },
          nb::arg("name"),
          nb::arg("value"))
      .def("to_bytes", [](const State& self) { return to_bytes(self); });
}

void bind_plan(nb::module_& module) {
  nb::class_<StepPlan>(module, "StepPlan", "What all replicas believe of a step, and this worker's part of it.")
      .def_ro("step", &StepPlan::step)
      .def_ro("epoch", &StepPlan::epoch)
      .def_ro("position", &StepPlan::position)
      .def_ro("step_size", &StepPlan::step_size)
      .def_ro("local_steps", &StepPlan::local_steps)
      .def_prop_ro(
          "parts",
          [](const StepPlan& self) { return to_pairs(self.parts()); },
          "This worker's positions of each of its local steps.")
      .def_prop_ro("slices", [](const StepPlan& self) { return to_pairs(self.slices); })
      .def_prop_ro("batches", &StepPlan::batches)
      .def(
          "positions",
          [](const StepPlan& self, std::size_t rank) { return self.positions(self.slices.at(rank)); },
          nb::arg("rank"),
          "The positions in the epoch's order that the worker takes; increasing.")
      .def_prop_ro("mine", [](const StepPlan& self) { return to_pair(self.mine); })
      .def_prop_ro("batch", [](const StepPlan& self) { return self.mine.size(); })
      .def_ro("loss_weight", &StepPlan::loss_weight)
      .def_ro("learning_rate_factor", &StepPlan::learning_rate_factor)
      .def_ro("diagnose", &StepPlan::diagnose)
      .def_ro("decision", &StepPlan::decision)
      .def_ro("digest", &StepPlan::digest);
  nb::class_<StepVerdict>(module, "StepVerdict", "What is to be done with a step whose reports are here.")
      .def_prop_ro(
          "action", [](const StepVerdict& self) { return std::string(name_of(kStepActionNames, self.action)); })
      .def_ro("ranks", &StepVerdict::ranks)
      .def_ro("message", &StepVerdict::message);
  nb::class_<StepOutcome>(module, "StepOutcome", "What follows from a finished step; the same on all workers.")
      .def_ro("record", &StepOutcome::record)
      .def_ro("events", &StepOutcome::events)
      .def_prop_ro("loss", [](const StepOutcome& self) { return self.record.loss; })
      .def_ro("stop", &StepOutcome::stop)
      .def_ro("stop_signal", &StepOutcome::stop_signal)
      .def_ro("non_finite", &StepOutcome::non_finite);
}

void bind_making(nb::class_<Replica>& replica) {
  replica.def(
      "__init__",
      [](Replica* self,
         const JobSettings& options,
         std::vector<Worker> workers,
         int rank,
         bool cpu,
         std::int64_t chunk_size) {
        new (self) Replica(options, std::move(workers), rank, {.cpu = cpu, .chunk_size = chunk_size});
      },
      nb::arg("options"),
      nb::arg("workers"),
      nb::arg("rank"),
      nb::kw_only(),
      nb::arg("cpu") = true,
      nb::arg("chunk_size") = 0);
  replica.def_static(
      "newcomer",
      [](const JobSettings& options, const Worker& worker, bool cpu, std::int64_t chunk_size) {
        return Replica::newcomer(options, worker, {.cpu = cpu, .chunk_size = chunk_size});
      },
      nb::arg("options"),
      nb::arg("worker"),
      nb::kw_only(),
      nb::arg("cpu") = true,
      nb::arg("chunk_size") = 0);
  replica.def("open", nb::overload_cast<std::int64_t>(&Replica::open), nb::arg("dataset_size"));
  replica.def(
      "open_by_cost",
      [](Replica& self,
         const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& works,
         const std::string& collate,
         bool learns_squares) {
        self.open(SampleWorks{
            .works = {works.data(), works.data() + works.size()},
            .collation = parse_name(kCollationNames, "collate", collate),
            .learns_squares = learns_squares});
      },
      nb::arg("works"),
      nb::arg("collate"),
      nb::kw_only(),
      nb::arg("learns_squares") = false,
      "A dataset whose samples cost differently: works by sample, and how those of a share add up.");
  replica.def("open_stream", nb::overload_cast<>(&Replica::open_stream));
  replica.def(
      "open_arriving",
      [](Replica& self, const std::string& collate, bool learns_squares, std::int64_t dataset_size) {
        self.open(ArrivingWorks{
            .collation = parse_name(kCollationNames, "collate", collate),
            .learns_squares = learns_squares,
            .dataset_size = dataset_size});
      },
      nb::arg("collate"),
      nb::kw_only(),
      nb::arg("learns_squares") = false,
      nb::arg("dataset_size") = 0,
      "Samples that cost differently and are known only as they arrive: plan_arrived() is told their works. 0: a "
      "stream.");
}

void bind_steps(nb::class_<Replica>& replica) {
  replica.def("plan", &Replica::plan, nb::arg("from_stream") = 0, nb::arg("most") = 0, nb::rv_policy::copy);
  replica.def(
      "plan_arrived",
      [](Replica& self, const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& works) {
        return self.plan_arrived({works.data(), works.size()});
      },
      nb::arg("works"));
  replica.def(
      "plan_parts",
      [](Replica& self, const std::vector<std::int64_t>& samples) { return self.plan_parts(samples); },
      nb::arg("samples"));
  replica.def("report", &Replica::report, nb::arg("measured"), "Completes what was measured, and signs it.");
  replica.def(
      "average_weight",
      [](const Replica& self, const Reports& reports) { return self.average_weight(reports); },
      nb::arg("reports"),
      "The weight of this worker's change of the parameters in a round.");
  replica.def(
      "judge",
      [](const Replica& self, const Reports& reports, bool finite) { return self.judge(reports, finite); },
      nb::arg("reports"),
      nb::arg("gradient_is_finite"));
  const auto finishing = [&](const char* name,
                             StepOutcome (Replica::*finish)(std::span<const StepReport>, double, double)) {
    replica.def(
        name,
        [finish](Replica& self, const Reports& reports, double finished, double now) {
          return (self.*finish)(reports, finished, now);
        },
        nb::arg("reports"),
        nb::arg("finished"),
        nb::arg("now"));
  };
  finishing("complete", &Replica::complete);
  finishing("leave_out", &Replica::leave_out);
  replica.def(
      "redo",
      [](Replica& self, const Reports& reports, double now) { return self.redo(reports, now); },
      nb::arg("reports"),
      nb::arg("now"));
  replica.def("abandon", &Replica::abandon);
  replica.def("abandon_for_memory", &Replica::abandon_for_memory, nb::arg("chunkable"));
  replica.def("end_epoch", &Replica::end_epoch);
  replica.def(
      "change_data",
      [](Replica& self, std::int64_t dataset_size, const std::optional<nb::bytes>& place) {
        return to_bytes(self.change_data(dataset_size, place ? std::optional(from_bytes(*place)) : std::nullopt));
      },
      nb::arg("dataset_size"),
      nb::arg("place") = nb::none());
}

void bind_membership(nb::class_<Replica>& replica) {
  replica.def("note_eviction", &Replica::note_eviction, nb::arg("rank"));
  replica.def("progress", &Replica::progress, nb::arg("now"));
  replica.def("finish_unreported", &Replica::finish_unreported, nb::arg("settlement"), nb::arg("now"));
  replica.def(
      "take_over", [](Replica& self, const nb::bytes& state) { self.take_over(from_bytes(state)); }, nb::arg("state"));
  replica.def("adopt", &Replica::adopt, nb::arg("settlement"), nb::arg("rank"), nb::arg("now"));
  replica.def(
      "change_bounds",
      [](Replica& self, const std::vector<Pair>& bounds) {
        std::vector<BatchBounds> given;
        given.reserve(bounds.size());
        for (const auto& [least, most] : bounds) {
          given.push_back({.min_batch = least, .max_batch = most});
        }
        self.change_bounds(given);
      },
      nb::arg("bounds"));
  replica.def("state", [](const Replica& self) { return to_bytes(self.state()); });
  replica.def(
      "restore", [](Replica& self, const nb::bytes& state) { self.restore(from_bytes(state)); }, nb::arg("state"));
  replica.def(
      "roll_back",
      [](Replica& self, const nb::bytes& state, const std::string& message, double now) {
        return self.roll_back(from_bytes(state), message, now);
      },
      nb::arg("state"),
      nb::arg("message"),
      nb::arg("now"));
}

std::string phase_name(const Replica& replica) {
  switch (replica.phase()) {
    case Replica::Phase::kBetween:
      return "between";
    case Replica::Phase::kComputing:
      return "computing";
    case Replica::Phase::kComputed:
      return "computed";
  }
  return "";
}

// Copies, where an object would change under the hands of whoever keeps it.
void bind_views(nb::class_<Replica>& replica) {
  replica.def_prop_ro("phase", &phase_name)
      .def_prop_ro("rank", &Replica::rank)
      .def_prop_ro("joined", &Replica::joined)
      .def_prop_ro(
          "workers",  // the replica's may have their bounds in units
          [](const Replica& self) {
            return self.units_per_sample() > 1 && self.joined() ? self.members() : self.workers();
          })
      .def_prop_ro("members", [](const Replica& self) { return self.members(); })
      .def_prop_ro("decision", &Replica::decision, nb::rv_policy::copy)
      .def_prop_ro("step", &Replica::step)
      .def_prop_ro("round_steps", &Replica::round_steps)
      .def_prop_ro("epoch", &Replica::epoch)
      .def_prop_ro("position", &Replica::position)
      .def_prop_ro("ledger", &Replica::ledger, nb::rv_policy::copy)
      .def_prop_ro("sampler", &Replica::sampler, nb::rv_policy::copy)
      .def_prop_ro("chunk_size", &Replica::chunk_size)
      .def_prop_ro("by_cost", &Replica::by_cost)
      .def_prop_ro("units_per_sample", &Replica::units_per_sample)
      .def_prop_ro("work_per_square", &Replica::work_per_square)
      .def("foresee", &Replica::foresee, nb::arg("epoch"), nb::arg("position"))
      .def_prop_ro("stopping", &Replica::stopping)
      .def_prop_ro("stop_signal", &Replica::stop_signal)
      .def_prop_ro("last_step", [](const Replica& self) { return self.last_step(); });
}

}  // namespace

void bind_replica(nb::module_& module) {
  bind_state(module);
  bind_plan(module);
  nb::class_<Replica> replica(module, "Replica", "One worker's copy of a synchronous job: the step protocol.");
  bind_making(replica);
  bind_steps(replica);
  bind_membership(replica);
  bind_views(replica);
}

}  // namespace isochron::python
