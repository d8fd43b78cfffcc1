#include "isochron/core/replica/saved_replica.h"

#include <stdexcept>
#include <string_view>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/job_settings.h"
#include "isochron/core/replica/progress.h"

namespace isochron {
namespace {

constexpr std::int64_t kSchema = 1;  // raised when a field changes its meaning
constexpr std::string_view kController = "controller";
constexpr std::string_view kRounds = "rounds";
constexpr std::string_view kWork = "work";

// A column of the record's workers.
template <class T>
void exchange_column(StateExchange& state, const WorkerColumn<T>& column, std::vector<WorkerStep>& workers) {
  const std::string_view name = column.name;
  std::vector<T> values;
  values.reserve(workers.size());
  for (const WorkerStep& worker : workers) {
    values.push_back(column.of(worker));
  }
  state.field(name, values);
  if (state.restoring() && name == "workers") {
    workers.resize(values.size());
  }
  if (values.size() != workers.size()) {
    throw std::invalid_argument("state field record." + std::string(name) + " is of another length than the workers");
  }
  for (std::size_t k = 0; k < workers.size(); ++k) {
    column.of(workers[k]) = values[k];
  }
}

struct RecordState {
  StepRecord record;

  void exchange(StateExchange& state) {
    state.field("step", record.step);
    state.field("epoch", record.epoch);
    state.field("position", record.position);
    state.field("start_seconds", record.start_seconds);
    state.field("seconds", record.seconds);
    std::apply([&](const auto&... column) { (exchange_column(state, column, record.workers), ...); }, kWorkerColumns);
    state.field("learning_rate_factor", record.learning_rate_factor);
    state.field("changed", record.changed);
    exchange_reason(state, record.reason);
    state.field("words", record.words);
    state.field("loss", record.loss);
  }
};

// Something that may be missing: "NAME.known", and its fields if it is there.
template <class Part>
void exchange_optional(StateExchange& state, const std::string& name, std::optional<Part>& part) {
  bool known = part.has_value();
  state.field(name + ".known", known);
  if (!known) {
    part.reset();
    return;
  }
  if (!part) {
    part.emplace();
  }
  state.part(name, *part);
}

// Everything but the controller, the rounds and what was learned of works, which are States of their own.
struct Fields {
  SavedReplica saved;

  void exchange(StateExchange& state) {
    std::int64_t schema = kSchema;
    state.field("schema", schema);
    if (schema != kSchema) {
      refuse("state field schema", schema, std::to_string(kSchema));
    }
    exchange_options(state);
    exchange_roster(state);
    state.field("next_id", saved.next_id);
    state.part("ceilings", saved.ceilings);
    exchange_chunk_sizes(state);
    exchange_optional(state, "place", saved.place);
    std::optional<RecordState> record;
    if (saved.record) {
      record.emplace(RecordState{*saved.record});
    }
    exchange_optional(state, "record", record);
    saved.record = record ? std::optional(std::move(record->record)) : std::nullopt;
    state.field("stopping", saved.stopping);
    state.field("stop_signal", saved.stop_signal);
    state.field("rolled_back_for", saved.rolled_back_for);
  }

  // Texts, for a seed is larger than a number of a State; the global batch has always been a number.
  void exchange_options(StateExchange& state) {
    for (auto& [name, text] : option_texts({}, kCheckpointed)) {
      std::string& value = saved.options[name];
      if (name != "global_batch") {
        state.field(name, value);
        continue;
      }
      std::int64_t number = state.restoring() ? 0 : std::stoll(value);
      state.field(name, number);
      value = std::to_string(number);
    }
  }

  void exchange_chunk_sizes(StateExchange& state) {
    std::vector<WorkerId> workers;
    std::vector<std::int64_t> sizes;
    for (const auto& [worker, size] : saved.chunk_sizes) {
      workers.push_back(worker);
      sizes.push_back(size);
    }
    state.field("chunks.workers", workers);
    sizes.resize(workers.size());
    state.fixed_list("chunks.sizes", sizes);
    saved.chunk_sizes.clear();
    for (std::size_t k = 0; k < workers.size(); ++k) {
      if (sizes[k] < 1) {
        refuse("state field chunks.sizes", sizes[k], "1 or more");
      }
      saved.chunk_sizes.emplace(workers[k], sizes[k]);
    }
  }

  void exchange_roster(StateExchange& state) {
    std::vector<WorkerState> described;
    described.reserve(saved.roster.size());
    for (Worker& worker : saved.roster) {
      described.push_back({std::move(worker)});
    }
    state.parts("roster", described);
    saved.roster.clear();
    for (WorkerState& one : described) {
      saved.roster.push_back(std::move(one.worker));
    }
  }
};

}  // namespace

State SavedReplica::to_state() const {
  Fields fields{*this};
  State state = save_state(fields);
  state.put(kController, controller);
  state.put(kRounds, rounds);
  state.put(kWork, work);
  return state;
}

SavedReplica SavedReplica::from_state(const State& state) {
  Fields fields;
  restore_state(fields, state);
  fields.saved.controller = state.part(kController);
  fields.saved.rounds = state.part(kRounds);
  fields.saved.work = state.part(kWork);
  return std::move(fields.saved);
}

void SavedReplica::check_options(const SavedReplica& other) const {
  for (const auto& [name, saved] : options) {
    const auto given = other.options.find(name);
    ISO_CHECK(given != other.options.end(), "a replica that does not know its " + name);
    require(given->second == saved, name, std::string_view(given->second), "that of the checkpoint, " + saved);
  }
}

WorkerId SavedReplica::give_ids(std::vector<Worker>& workers) const {
  WorkerId next = next_id;
  for (std::size_t k = 0; k < workers.size(); ++k) {
    workers[k].id = k < roster.size() ? roster[k].id : next++;
  }
  return next;
}

}  // namespace isochron
