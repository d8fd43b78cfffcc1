#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/error.h"
#include "isochron/core/replica/introduction.h"
#include "isochron/core/replica/progress.h"
#include "isochron/core/replica/step_report.h"
#include "isochron/core/trace/event.h"
#include "isochron/core/trace/metrics.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

struct EventNames {};

void bind_step_records(nb::module_& module) {
  nb::class_<WorkerStep> worker_step(module, "WorkerStep", "One worker's part of a finished step.");
  const auto add = [&]<class T>(const WorkerColumn<T>& column) {
    worker_step.def_prop_ro(column.attribute.data(), [column](const WorkerStep& self) { return column.of(self); });
  };
  std::apply([&](const auto&... column) { (add(column), ...); }, kWorkerColumns);
  nb::class_<StepRecord>(module, "StepRecord", "A finished step, as in the run log.")
      .def_ro("step", &StepRecord::step)
      .def_ro("epoch", &StepRecord::epoch)
      .def_ro("position", &StepRecord::position)
      .def_ro("start_seconds", &StepRecord::start_seconds)
      .def_ro("seconds", &StepRecord::seconds)
      .def_ro("workers", &StepRecord::workers)
      .def_ro("learning_rate_factor", &StepRecord::learning_rate_factor)
      .def_ro("changed", &StepRecord::changed)
      .def_prop_ro("reason", [](const StepRecord& self) { return std::string(to_string(self.reason)); })
      .def_ro("words", &StepRecord::words)
      .def_ro("loss", &StepRecord::loss)
      .def_prop_ro(
          "batch_sizes",
          [](const StepRecord& self) {
            std::vector<std::int64_t> sizes;
            std::ranges::transform(self.workers, std::back_inserter(sizes), &WorkerStep::batch);
            return sizes;
          })
      .def_prop_ro(
          "balance",
          [](const StepRecord& self) { return balance(self.workers); },
          "Mean over longest compute time of the workers that computed: 1 if all were done at the same moment.")
      .def(
          "beside",
          [](const StepRecord& self,
             std::int64_t epoch,
             std::int64_t position,
             const std::vector<std::int64_t>& batch_sizes) {
            StepRecord record = self;
            record.epoch = epoch;
            record.position = position;
            for (std::size_t i = 0; i < std::min(record.workers.size(), batch_sizes.size()); ++i) {
              record.workers[i].batch = batch_sizes[i];
            }
            return record;
          },
          nb::arg("epoch"),
          nb::arg("position"),
          nb::arg("batch_sizes"),
          "The same step, for the log of data whose samples it used, too.")
      .def("to_json", [](const StepRecord& self) { return to_json(self); })
      .def("__repr__", [](const StepRecord& self) { return "StepRecord(" + to_json(self) + ")"; });
}

void bind_other_records(nb::module_& module) {
  nb::class_<UpdateRecord>(module, "UpdateRecord", "What one worker of an asynchronous run added to the model.")
      .def_ro("step", &UpdateRecord::step)
      .def_ro("epoch", &UpdateRecord::epoch)
      .def_ro("position", &UpdateRecord::position)
      .def_ro("seconds", &UpdateRecord::seconds)
      .def_ro("worker", &UpdateRecord::worker)
      .def_ro("learning_rate_factor", &UpdateRecord::learning_rate_factor)
      .def_ro("changed", &UpdateRecord::changed)
      .def_prop_ro("reason", [](const UpdateRecord& self) { return std::string(to_string(self.reason)); })
      .def_ro("words", &UpdateRecord::words)
      .def_ro("loss", &UpdateRecord::loss)
      .def_ro("staleness", &UpdateRecord::staleness)
      .def("__repr__", [](const UpdateRecord& self) { return "UpdateRecord(" + to_json(self) + ")"; });
  nb::class_<EventRecord>(module, "EventRecord", "Something that happened to a worker or to the job.")
      .def(
          "__init__",
          [](EventRecord* self,
             std::int64_t step,
             double seconds,
             std::string event,
             WorkerId worker,
             std::string words) {
            new (self) EventRecord{
                .step = step,
                .seconds = seconds,
                .event = std::move(event),
                .worker = worker,
                .words = std::move(words)};
          },
          nb::arg("step"),
          nb::arg("seconds"),
          nb::arg("event"),
          nb::arg("worker"),
          nb::arg("words"))
      .def_ro("step", &EventRecord::step)
      .def_ro("seconds", &EventRecord::seconds)
      .def_ro("event", &EventRecord::event)
      .def_ro("worker", &EventRecord::worker)
      .def_ro("words", &EventRecord::words)
      .def("__repr__", [](const EventRecord& self) { return "EventRecord(" + to_json(self) + ")"; });
  module.def(
      "balance",
      [](const std::vector<std::int64_t>& batches, const std::vector<double>& seconds) {
        std::vector<WorkerStep> workers(std::min(batches.size(), seconds.size()));
        for (std::size_t i = 0; i < workers.size(); ++i) {
          workers[i].batch = batches[i];
          workers[i].compute_seconds = seconds[i];
        }
        return balance(workers);
      },
      nb::arg("batches"),
      nb::arg("seconds"),
      "Mean over longest compute time of the workers that computed; NaN if none did.");
  const nb::class_<EventNames> events(
      module, "Event", "What can happen to a worker or to a job, as the run log spells it.");
  for (const EventKind& kind : kEvents) {
    std::string constant(kind.name);
    std::ranges::transform(
        constant, constant.begin(), [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
    events.attr(constant.c_str()) = std::string(kind.name);
  }
}

std::vector<float> to_floats(const nb::bytes& bytes) {
  if (bytes.size() % sizeof(float) != 0) {
    throw Error("reports of " + std::to_string(bytes.size()) + " bytes arrived; permitted: whole numbers of floats");
  }
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.c_str(), bytes.size());
  return numbers;
}

void bind_reports(nb::module_& module) {
  nb::class_<StepReport> report(module, "StepReport", "What a worker reports of a step that it has computed.");
  report.def(nb::init<>());
  report.def_rw("usage", &StepReport::usage);
  const auto add = [&]<class T>(const ReportField<T>& field) {
    report.def_prop_rw(
        field.name,
        [field](const StepReport& self) { return field.of(self); },
        [field](StepReport& self, T value) { field.of(self) = value; });
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, kReportFields);
  report.def(
      "numbers",
      [](const StepReport& self) {
        const ReportNumbers numbers = encode(self);
        return std::vector<float>(numbers.begin(), numbers.end());
      },
      "Whole numbers below 65536, which any transport keeps that keeps single precision.");
  report.def(
      "to_bytes",
      [](const StepReport& self) {
        const ReportNumbers numbers = encode(self);
        return nb::bytes(numbers.data(), sizeof numbers);
      },
      "The same numbers as 32-bit floats.");
  module.attr("REPORT_NUMBERS") = kReportNumbers;
  module.def(
      "read_reports",
      [](const nb::bytes& bytes) { return decode_reports(to_floats(bytes)); },
      nb::arg("bytes"),
      "Those of all ranks, one after the other.");
  module.def(
      "read_reports", [](const std::vector<float>& numbers) { return decode_reports(numbers); }, nb::arg("numbers"));
}

void bind_progress(nb::module_& module) {
  nb::class_<ProgressReport>(module, "ProgressReport", "How far a worker is when the workers come together anew.")
      .def("encode", &ProgressReport::encode)
      .def_static("decode", &ProgressReport::decode, nb::arg("text"));
  nb::class_<Settlement>(module, "Settlement", "What follows from all workers' progress; the same on all.")
      .def_ro("leader", &Settlement::leader)
      .def_ro("behind", &Settlement::behind)
      .def_prop_ro("out_of_memory", [](const Settlement& self) { return !self.out_of_memory.empty(); });
  module.def(
      "settle",
      [](const std::vector<ProgressReport>& reports) { return settle(reports); },
      nb::arg("reports"),
      "By rank; at least one worker knows something.");
}

void bind_introduction(nb::module_& module) {
  nb::class_<Introduction>(module, "Introduction", "How a worker introduces itself to the others.")
      .def(
          "__init__",
          [](Introduction* self, const std::map<std::string, std::string>& shared, Worker worker) {
            new (self) Introduction{
                .shared = {shared.begin(), shared.end()},
                .worker = std::move(worker),
                .host = {},
                .former = {},
                .trouble = {}};
          },
          nb::arg("shared"),
          nb::arg("worker"))
      .def("encode", &Introduction::encode)
      .def_static("decode", &Introduction::decode, nb::arg("text"));
  module.def(
      "agree",
      [](const std::vector<Introduction>& introductions) { return agree(introductions); },
      nb::arg("introductions"),
      "All workers by rank, which is their id. ValueError names the option that they do not share.");
  module.def("objection", &objection, nb::arg("newcomer"), nb::arg("own"));
}

}  // namespace

void bind_records(nb::module_& module) {
  bind_step_records(module);
  bind_other_records(module);
  bind_reports(module);
  bind_progress(module);
  bind_introduction(module);
}

}  // namespace isochron::python
