#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/trace/run_log.h"
#include "isochron/io/process_usage.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/worker_variables.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using io::RunLogFile;
using Member = std::tuple<WorkerId, std::string, std::string>;  // id, name, kind

RunHeader make_header(
    std::string program,
    std::string policy,
    std::int64_t global_batch,
    std::uint64_t seed,
    std::int64_t samples_per_epoch,
    std::string model,
    std::string dataset,
    std::string sync,
    const std::vector<Member>& workers) {
  RunHeader header{
      .program = std::move(program),
      .version = ISOCHRON_VERSION,
      .policy = std::move(policy),
      .global_batch = global_batch,
      .seed = seed,
      .samples_per_epoch = samples_per_epoch,
      .model = std::move(model),
      .dataset = std::move(dataset),
      .sync = std::move(sync)};
  if (const char* const cluster = std::getenv(io::kClusterVariable)) {
    header.cluster = cluster;
  }
  for (const auto& [id, name, kind] : workers) {
    header.workers.push_back({.id = id, .name = name, .kind = kind});
  }
  return header;
}

void bind_opening(nb::class_<RunLogFile>& log) {
  log.def(
      "__init__",
      [](RunLogFile* self,
         const std::filesystem::path& path,
         std::string program,
         std::string policy,
         std::int64_t global_batch,
         std::uint64_t seed,
         std::int64_t samples_per_epoch,
         std::string model,
         std::string dataset,
         std::string sync,
         const std::vector<Member>& workers,
         bool go_on) {
        new (self) RunLogFile(
            path,
            make_header(
                std::move(program),
                std::move(policy),
                global_batch,
                seed,
                samples_per_epoch,
                std::move(model),
                std::move(dataset),
                std::move(sync),
                workers),
            go_on ? RunLogFile::Start::kContinue : RunLogFile::Start::kAnew);
      },
      nb::arg("path"),
      nb::kw_only(),
      nb::arg("program") = "torch",
      nb::arg("policy"),
      nb::arg("global_batch"),
      nb::arg("seed"),
      nb::arg("samples_per_epoch"),
      nb::arg("model"),
      nb::arg("dataset"),
      nb::arg("sync") = "",
      nb::arg("workers"),
      nb::arg("go_on"));
  log.def_prop_ro("continued", &RunLogFile::continued);
  log.def_prop_ro("next_step", &RunLogFile::next_step);
}

void bind_records(nb::class_<RunLogFile>& log) {
  log.def("write", [](RunLogFile& self, const StepRecord& record) { self.write(record); }, nb::arg("record"));
  log.def("write", [](RunLogFile& self, const UpdateRecord& record) { self.write(record); }, nb::arg("record"));
  log.def("write", [](RunLogFile& self, const EventRecord& record) { self.write(record); }, nb::arg("record"));
}

void bind_evaluations(nb::class_<RunLogFile>& log) {
  log.def(
      "evaluation",
      [](RunLogFile& self, std::int64_t step, double seconds, double loss, double accuracy) {
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
  nb::class_<io::ProcessUsage>(module, "ProcessUsage", "What this process takes of its machine.")
      .def_ro("cpu_seconds", &io::ProcessUsage::cpu_seconds)
      .def_ro("memory", &io::ProcessUsage::memory)
      .def_ro("peak_memory", &io::ProcessUsage::peak_memory);
  module.def("process_usage", &io::process_usage);
  nb::class_<RunLogFile> log(module, "RunLog", "A run log on disk, whole after every line.");
  bind_opening(log);
  bind_evaluations(log);
  bind_records(log);
}

}  // namespace isochron::python
