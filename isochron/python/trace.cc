#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/job_settings.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/io/lasting_log.h"
#include "isochron/io/process_usage.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/step_file.h"
#include "isochron/io/worker_variables.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using io::LastingLog;
using io::RunLogFile;

RunHeader make_header(
    std::string program,
    const JobSettings& settings,
    const std::vector<Worker>& workers,
    std::int64_t samples_per_epoch,
    std::string model,
    std::string dataset) {
  RunHeader header{
      .program = std::move(program),
      .version = ISOCHRON_VERSION,
      .policy = settings.policy,
      .global_batch = settings.global_batch,
      .seed = settings.seed,
      .samples_per_epoch = samples_per_epoch,
      .model = std::move(model),
      .dataset = std::move(dataset),
      .sync = settings.sync == Sync::kBsp ? "" : std::string(to_string(settings.sync)),
      .workers = members_of(workers)};
  if (const char* const cluster = std::getenv(io::kClusterVariable)) {
    header.cluster = cluster;
  }
  return header;
}

void bind_opening(nb::class_<LastingLog>& log) {
  log.def(
      "__init__",
      [](LastingLog* self,
         const std::filesystem::path& path,
         std::string program,
         const JobSettings& settings,
         const std::vector<Worker>& workers,
         std::int64_t samples_per_epoch,
         LastingLog::Warn warn,
         bool go_on,
         std::string model,
         std::string dataset,
         bool beside) {
        RunHeader header =
            make_header(std::move(program), settings, workers, samples_per_epoch, std::move(model), std::move(dataset));
        header.sync = beside ? "beside" : header.sync;
        new (self)
            LastingLog(path, header, go_on ? RunLogFile::Start::kContinue : RunLogFile::Start::kAnew, std::move(warn));
      },
      nb::arg("path"),
      nb::arg("program"),
      nb::arg("settings"),
      nb::arg("workers"),
      nb::arg("samples_per_epoch"),
      nb::kw_only(),
      nb::arg("warn"),
      nb::arg("go_on"),
      nb::arg("model") = "",
      nb::arg("dataset") = "",
      nb::arg("beside") = false);
  log.def_prop_ro("continued", &LastingLog::continued);
  log.def_prop_ro("next_step", &LastingLog::next_step);
  log.def("note_gap", &LastingLog::note_gap, nb::arg("step"), "Says that the lines up to that step are missing.");
  log.def("end", &LastingLog::end, "Tries a last time to write what waits, and warns of what is missing.");
}

void bind_records(nb::class_<LastingLog>& log) {
  log.def("write", [](LastingLog& self, const StepRecord& record) { self.write(record); }, nb::arg("record"));
  log.def("write", [](LastingLog& self, const UpdateRecord& record) { self.write(record); }, nb::arg("record"));
  log.def("write", [](LastingLog& self, const EventRecord& record) { self.write(record); }, nb::arg("record"));
}

void bind_evaluations(nb::class_<LastingLog>& log) {
  log.def(
      "evaluation",
      [](LastingLog& self, std::int64_t step, double seconds, double loss, double accuracy) {
        self.write(EvaluationRecord{.step = step, .seconds = seconds, .loss = loss, .accuracy = accuracy});
      },
      nb::kw_only(),
      nb::arg("step"),
      nb::arg("seconds"),
      nb::arg("loss"),
      nb::arg("accuracy"));
}

}  // namespace

void bind_trace(nb::module_& module) {
  nb::class_<MachineUsage> usage(module, "MachineUsage", "What a worker takes of its machine.");
  for (const UsageField& field : kUsageFields) {
    usage.def_rw(field.name.data(), field.member);
  }
  module.def("cpu_seconds", &io::cpu_seconds, "CPU time of all threads of this process, so far.");
  module.def(
      "process_usage",
      &io::process_usage,
      nb::arg("cpu_began"),
      nb::arg("seconds"),
      "That of the seconds that have just passed, at whose beginning cpu_seconds() was `cpu_began`.");
  nb::class_<io::StepFile>(module, "StepFile", "The step that a job is at, for its launcher (isochron/io/step_file.h).")
      .def_static("open", &io::StepFile::open, nb::arg("path"))
      .def("publish", &io::StepFile::publish, nb::arg("step"));
  nb::class_<LastingLog> log(
      module,
      "RunLog",
      "A run log on disk, whole after every line. Lines wait if the disk is full, and `warn` is told.");
  bind_opening(log);
  bind_evaluations(log);
  bind_records(log);
}

}  // namespace isochron::python
