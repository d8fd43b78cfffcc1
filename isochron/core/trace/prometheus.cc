#include "isochron/core/trace/prometheus.h"

#include <cmath>
#include <string_view>

#include "isochron/core/trace/json.h"
#include "isochron/core/trace/utf8.h"

namespace isochron {
namespace {

/// key="value", with the escapes that the format asks for.
std::string label(std::string_view key, std::string_view value) {
  std::string text = std::string(key) + "=\"";
  for (const char c : to_utf8(value)) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') {
      text += '\\';
    }
    text += c;
  }
  return text + '"';
}

std::string number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0.0 ? "+Inf" : "-Inf";
  }
  return json_number(value);
}

std::string heading(std::string_view name, std::string_view type, std::string_view help) {
  const std::string full(name);
  return "# HELP " + full + ' ' + std::string(help) + "\n# TYPE " + full + ' ' + std::string(type) + '\n';
}

std::string metric(std::string_view name, std::string_view type, std::string_view help, double value) {
  return heading(name, type, help) + std::string(name) + ' ' + number(value) + '\n';
}

}  // namespace

PrometheusMetrics::PrometheusMetrics(RunHeader header) : header_(std::move(header)) {
  for (const RunHeader::Member& member : header_.workers) {
    labels_[member.id] = '{' + label("worker", member.name) + ',' + label("kind", member.kind) + '}';
  }
}

void PrometheusMetrics::observe(const StepRecord& record) {
  observe(record, record.workers);
}

void PrometheusMetrics::observe(const UpdateRecord& record) {
  observe(record, {&record.worker, 1});
}

template <class Record>
void PrometheusMetrics::observe(const Record& record, std::span<const WorkerStep> workers) {
  for (const WorkerStep& worker : workers) {
    last_steps_[worker.id] = worker;
    labels_.try_emplace(worker.id, '{' + label("worker", std::to_string(worker.id)) + '}');
    samples_ += static_cast<double>(worker.batch);
  }
  meter_.add(record);
  last_step_ = record.step;
  last_seconds_ = record.seconds;
  learning_rate_factor_ = record.learning_rate_factor;
  ++steps_;
  adjustments_ += record.changed ? 1 : 0;
}

void PrometheusMetrics::observe(const EventRecord& record) {
  meter_.add(record);
  if (removes_worker(record)) {
    last_steps_.erase(record.worker);
  } else if (is(record, Event::kJoin)) {
    labels_[record.worker] = '{' + label("worker", record.words) + '}';
  }
}

std::string PrometheusMetrics::text() const {
  const auto per_worker = [this](std::string_view name, std::string_view help, auto field) {
    std::string text = heading(name, "gauge", help);
    for (const auto& [id, step] : last_steps_) {
      text += std::string(name) + labels_.at(id) + ' ' + number(static_cast<double>(step.*field)) + '\n';
    }
    return text;
  };
  return heading("isochron_run_info", "gauge", "The run; the value is always 1.") + "isochron_run_info{" +
         label("program", header_.program) + ',' + label("version", header_.version) + ',' +
         label("policy", header_.policy) + ',' + label("cluster", header_.cluster) + "} 1\n" +
         metric("isochron_workers", "gauge", "Workers that are there.", static_cast<double>(last_steps_.size())) +
         metric("isochron_step", "gauge", "Number of the last finished step.", static_cast<double>(last_step_)) +
         metric("isochron_steps_total", "counter", "Finished steps.", static_cast<double>(steps_)) +
         metric("isochron_samples_total", "counter", "Samples computed.", samples_) +
         metric("isochron_adjustments_total", "counter", "Changes of the split.", static_cast<double>(adjustments_)) +
         metric("isochron_step_seconds", "gauge", "Duration of the last step.", last_seconds_) +
         metric(
             "isochron_samples_per_second", "gauge", "Throughput of the last step.", meter_.last().samples_per_second) +
         metric(
             "isochron_balance", "gauge", "Mean over longest compute time of the last step.", meter_.last().balance) +
         metric(
             "isochron_learning_rate_factor",
             "gauge",
             "Factor of the learning rate in the last step.",
             learning_rate_factor_) +
         per_worker("isochron_batch_size", "Samples of the worker in its last step.", &WorkerStep::batch) +
         per_worker("isochron_compute_seconds", "Time to the last local gradient.", &WorkerStep::compute_seconds) +
         per_worker("isochron_wait_seconds", "Time spent waiting for the others.", &WorkerStep::wait_seconds) +
         per_worker("isochron_exchange_seconds", "Communication not overlapped.", &WorkerStep::exchange_seconds);
}

}  // namespace isochron
