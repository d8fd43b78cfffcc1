#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/policy/policy.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/worker_variables.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using io::RunLogFile;
using Member = std::tuple<WorkerId, std::string, std::string>;                     // id, name, kind
using Share = std::tuple<WorkerId, std::int64_t, double, double, double, double>;  // as in WorkerStep

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

Reason parse_reason(const std::string& name) {
  for (int number = 0; number <= static_cast<int>(kLastReason); ++number) {
    const auto reason = static_cast<Reason>(number);
    if (to_string(reason) == name) {
      return reason;
    }
  }
  throw std::invalid_argument("reason is '" + name + "'; permitted: one that a Decision gives");
}

WorkerStep make_share(const Share& share) {
  const auto& [id, batch, start, compute, wait, exchange] = share;
  return {
      .id = id,
      .batch = batch,
      .start_seconds = start,
      .compute_seconds = compute,
      .wait_seconds = wait,
      .exchange_seconds = exchange};
}

std::vector<WorkerStep> make_shares(const std::vector<Share>& shares) {
  std::vector<WorkerStep> workers;
  std::ranges::transform(shares, std::back_inserter(workers), make_share);
  return workers;
}

void write_step(
    RunLogFile& log,
    std::int64_t step,
    std::int64_t epoch,
    std::int64_t position,
    double start,
    double seconds,
    const std::vector<Share>& workers,
    double learning_rate_factor,
    bool changed,
    const std::string& reason,
    std::string words,
    double loss) {
  log.write(StepRecord{
      .step = step,
      .epoch = epoch,
      .position = position,
      .start_seconds = start,
      .seconds = seconds,
      .workers = make_shares(workers),
      .learning_rate_factor = learning_rate_factor,
      .changed = changed,
      .reason = parse_reason(reason),
      .words = std::move(words),
      .loss = loss});
}

void write_update(
    RunLogFile& log,
    std::int64_t step,
    std::int64_t epoch,
    std::int64_t position,
    double seconds,
    const Share& worker,
    double learning_rate_factor,
    bool changed,
    const std::string& reason,
    std::string words,
    double loss,
    std::int64_t staleness) {
  log.write(UpdateRecord{
      .step = step,
      .epoch = epoch,
      .position = position,
      .seconds = seconds,
      .worker = make_share(worker),
      .learning_rate_factor = learning_rate_factor,
      .changed = changed,
      .reason = parse_reason(reason),
      .words = std::move(words),
      .loss = loss,
      .staleness = staleness});
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

void bind_steps(nb::class_<RunLogFile>& log) {
  log.def(
      "step",
      &write_step,
      nb::kw_only(),
      nb::arg("step"),
      nb::arg("epoch"),
      nb::arg("position"),
      nb::arg("start"),
      nb::arg("seconds"),
      nb::arg("workers"),
      nb::arg("learning_rate_factor"),
      nb::arg("changed"),
      nb::arg("reason"),
      nb::arg("words"),
      nb::arg("loss"));
  log.def(
      "update",
      &write_update,
      nb::kw_only(),
      nb::arg("step"),
      nb::arg("epoch"),
      nb::arg("position"),
      nb::arg("seconds"),
      nb::arg("worker"),
      nb::arg("learning_rate_factor"),
      nb::arg("changed"),
      nb::arg("reason"),
      nb::arg("words"),
      nb::arg("loss"),
      nb::arg("staleness"));
}

// Records as core has them, without a copy field by field.
void bind_records(nb::class_<RunLogFile>& log) {
  log.def("write", [](RunLogFile& self, const StepRecord& record) { self.write(record); }, nb::arg("record"));
  log.def("write", [](RunLogFile& self, const EventRecord& record) { self.write(record); }, nb::arg("record"));
}

void bind_events(nb::class_<RunLogFile>& log) {
  log.def(
      "event",
      [](RunLogFile& self, std::int64_t step, double seconds, std::string event, WorkerId worker, std::string words) {
        self.write(EventRecord{
            .step = step, .seconds = seconds, .event = std::move(event), .worker = worker, .words = std::move(words)});
      },
      nb::kw_only(),
      nb::arg("step"),
      nb::arg("seconds"),
      nb::arg("event"),
      nb::arg("worker"),
      nb::arg("words"));
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
  nb::class_<RunLogFile> log(module, "RunLog", "A run log on disk, whole after every line.");
  bind_opening(log);
  bind_steps(log);
  bind_events(log);
  bind_records(log);
}

}  // namespace isochron::python
