#include "isochron/io/cluster_file.h"

#include <set>
#include <stdexcept>

#include "isochron/io/cluster_writer.h"
#include "isochron/io/toml_fields.h"
#include "isochron/io/toml_file.h"
#include "isochron/io/units.h"

namespace isochron::io {
namespace {

using sim::Change;
using sim::ClusterSpec;
using sim::WorkerSpec;

constexpr std::int64_t kMaxWorkers = 100'000;

/// `noise = 0.05` is short for `noise = { sigma = 0.05 }`.
void read_noise(TomlFields& worker, const std::string& file, sim::Noise& noise) {
  const toml::node* const found = worker.node("noise");
  if (found == nullptr || found->is_number()) {
    worker.number("noise", noise.sigma);
    return;
  }
  if (!found->is_table()) {
    worker.refuse("noise", "a number, or a table with sigma");
  }
  TomlFields fields(file, *found->as_table());
  fields.number("sigma", noise.sigma);
  fields.number("autocorrelation", noise.autocorrelation);
  fields.number("spike_probability", noise.spike_probability);
  fields.number("spike_low", noise.spike_low);
  fields.number("spike_high", noise.spike_high);
  fields.number("drift", noise.drift);
  fields.finish();
}

void read_interference(TomlFields& worker, const std::string& file, sim::Interference& interference) {
  if (const toml::table* const found = worker.table("interference")) {
    TomlFields fields(file, *found);
    fields.number("slowdown", interference.slowdown);
    fields.integer("on", interference.on);
    fields.integer("off", interference.off);
    fields.integer("phase", interference.phase);
    fields.finish();
  }
}

void read_network(TomlFields& worker, const std::string& file, sim::Link& link) {
  if (const toml::table* const found = worker.table("network")) {
    TomlFields fields(file, *found);
    fields.parsed("rate", parse_rate, link.bytes_per_second);
    fields.parsed("delay", parse_duration, link.delay_seconds);
    fields.finish();
  }
}

/// Validates a cluster, or a part of it by itself, so that an error carries the line of that part.
void validate_at(const TomlFields& place, const ClusterSpec& part) {
  try {
    part.validate();
  } catch (const std::invalid_argument& error) {
    place.fail_where_named(error.what());
  }
}

std::int64_t read_count(TomlFields& fields, std::int64_t room) {
  std::int64_t count = 1;
  fields.integer("count", count);
  if (count < 1 || count > room) {
    fields.fail(
        "count",
        (fields.node("count") != nullptr ? "count is " + std::to_string(count) : std::string("one worker too many")) +
            "; permitted: 1 or more, and at most " + std::to_string(kMaxWorkers) + " workers in all");
  }
  return count;
}

void read_worker(const std::string& file, const toml::table& table, std::vector<WorkerSpec>& workers) {
  TomlFields fields(file, table);
  WorkerSpec worker;
  worker.name = "worker-" + std::to_string(workers.size());
  fields.text("name", worker.name);
  fields.text("kind", worker.kind);
  fields.number("cores", worker.cores);
  fields.number("overhead", worker.overhead);
  fields.number("plateau", worker.plateau);
  fields.number("cold_seconds", worker.cold_seconds);
  read_noise(fields, file, worker.noise);
  read_interference(fields, file, worker.interference);
  read_network(fields, file, worker.link);
  fields.number("gpu_share", worker.gpu_share);
  fields.integer("min_batch", worker.min_batch);
  fields.integer("max_batch", worker.max_batch);
  fields.integer("granularity", worker.granularity);
  fields.flag("absent", worker.absent);
  const std::int64_t count = read_count(fields, kMaxWorkers - static_cast<std::int64_t>(workers.size()));
  fields.finish();

  ClusterSpec alone;
  alone.workers.push_back(worker);
  alone.workers.front().absent = false;
  validate_at(fields, alone);
  if (!table.contains("count")) {
    workers.push_back(std::move(worker));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    workers.push_back(worker);
    workers.back().name += '-' + std::to_string(i);
  }
}

Event parse_event(std::string_view name) {
  for (const Event event : {Event::kKill, Event::kStop, Event::kContinue, Event::kJoin}) {
    if (name == to_string(event)) {
      return event;
    }
  }
  throw std::invalid_argument("'" + std::string(name) + "'; permitted: kill, stop, continue, join");
}

Change read_change(const std::string& file, const toml::table& table, const std::set<std::string_view>& names) {
  TomlFields fields(file, table);
  Change change;
  if (fields.node("at_step") != nullptr) {
    fields.integer("at_step", change.at_step.emplace());
  }
  if (fields.node("at_seconds") != nullptr) {
    fields.number("at_seconds", change.at_seconds.emplace());
  }
  fields.text("worker", change.worker);
  if (fields.node("cores") != nullptr) {
    fields.number("cores", change.cores.emplace());
  }
  fields.parsed("event", parse_event, change.event);
  fields.finish();

  if (change.worker != "*" && !names.contains(change.worker)) {
    fields.fail("worker", "worker is '" + change.worker + "'; permitted: the name of a worker of this file, or *");
  }
  ClusterSpec alone;
  alone.workers.emplace_back().name = change.worker == "*" ? "all" : change.worker;
  alone.changes.push_back(change);
  validate_at(fields, alone);
  return change;
}

}  // namespace

ClusterSpec parse_cluster(std::string_view text, const std::string& file) {
  const toml::table root = parse_toml(text, file);
  TomlFields fields(file, root);
  ClusterSpec cluster;
  cluster.name = std::filesystem::path(file).stem().string();
  fields.text("name", cluster.name);
  fields.text("description", cluster.description);
  fields.number("sample_seconds", cluster.sample_seconds);
  fields.number("common_noise", cluster.common_noise);
  for (const toml::table* const worker : fields.tables("worker")) {
    read_worker(file, *worker, cluster.workers);
  }
  std::set<std::string_view> names;
  for (const WorkerSpec& worker : cluster.workers) {
    names.insert(worker.name);
  }
  for (const toml::table* const change : fields.tables("change")) {
    cluster.changes.push_back(read_change(file, *change, names));
  }
  fields.finish();
  validate_at(fields, cluster);
  return cluster;
}

ClusterSpec read_cluster_file(const std::filesystem::path& path) {
  return parse_cluster(read_toml_text(path, "cluster file"), path.string());
}

}  // namespace isochron::io
