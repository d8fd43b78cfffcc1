#include "isochron/engine/agreement.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "isochron/core/state.h"
#include "isochron/core/trace/json.h"
#include "isochron/engine/job.h"
#include "isochron/engine/standing.h"

namespace isochron {
namespace {

std::string sync_text(const JobOptions& options) {
  const AsyncOptions& async = options.async;
  switch (options.sync) {
    case Sync::kBsp:
      return "bsp";
    case Sync::kAsp:
    case Sync::kSsp:
      break;
  }
  return (options.sync == Sync::kSsp ? "ssp " + std::to_string(async.staleness) : "asp") + ", " +
         std::to_string(async.servers) + " servers, rate " + std::string(to_string(async.rate)) +
         (async.momentum_correction ? ", momentum corrected" : "");
}

struct Shared {
  std::string version = ISOCHRON_VERSION;
  std::string global_batch;
  std::string policy;
  std::string rate;
  std::string weighting;
  std::string seed;
  std::string last_batch;
  std::string sync_batch_norm;
  std::string compression;
  std::string sync;

  explicit Shared(const JobOptions& options)
      : global_batch(std::to_string(options.global_batch)),
        policy(options.policy),
        rate(
            std::string(to_string(options.rate.rule)) + " for " + std::to_string(options.rate.reference_batch) +
            ", warm-up " + json_number(options.rate.warmup_steps)),
        weighting(options.weighting == Weighting::kExact ? "exact" : "mean"),
        seed(std::to_string(options.seed)),
        last_batch(options.last_batch == LastBatch::kKeep ? "keep" : "drop"),
        sync_batch_norm(options.sync_batch_norm ? "yes" : "no"),
        compression(options.gradients.compression == Compression::kNone ? "none" : "bf16"),
        sync(sync_text(options)) {}

  void exchange(StateExchange& state) {
    state.field("version", version);
    state.field("global_batch", global_batch);
    state.field("policy", policy);
    state.field("rate", rate);
    state.field("weighting", weighting);
    state.field("seed", seed);
    state.field("last_batch", last_batch);
    state.field("sync_batch_norm", sync_batch_norm);
    state.field("compression", compression);
    state.field("sync", sync);
  }
};

// Empty if there is none.
std::string difference(const State& theirs, const State& first, const std::string& whose) {
  for (const auto& [name, value] : theirs.words) {
    const auto expected = first.words.find(name);
    if (expected == first.words.end() || value != expected->second) {
      return name + " is " + value + " on " + whose + "; permitted: what rank 0 has, " +
             (expected == first.words.end() ? "nothing" : expected->second);
    }
  }
  return {};
}

std::vector<State> gather_states(const Group& group, const State& mine) {
  std::vector<State> states;
  for (const std::string& text : all_gather(group, mine.serialize())) {
    states.push_back(State::parse(text));
  }
  return states;
}

}  // namespace

Worker describe(const JobOptions& options) {
  return {
      .kind = options.kind,
      .weight = options.weight,
      .min_batch = options.min_batch,
      .max_batch = std::min(options.max_batch, options.global_batch),
      .granularity = options.granularity,
      .name = options.name};
}

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  Shared shared(options);
  const std::vector<State> states = gather_states(group, save_state(shared));
  for (std::size_t rank = 1; rank < states.size(); ++rank) {
    if (const std::string words = difference(states[rank], states[0], "rank " + std::to_string(rank)); !words.empty()) {
      throw std::invalid_argument(words);
    }
  }

  WorkerState self{describe(options)};
  std::vector<Worker> workers;
  for (const State& state : gather_states(group, save_state(self))) {
    WorkerState described;
    restore_state(described, state);
    described.worker.id = workers.size();
    if (described.worker.name.empty()) {
      described.worker.name = "worker-" + std::to_string(described.worker.id);
    }
    workers.push_back(std::move(described.worker));
  }
  return workers;
}

bool any_in_pieces(const Group& group, const JobOptions& options) {
  return sum(group, {options.micro_batch > 0 ? 1.0 : 0.0}).front() > 0;
}

std::string introduction(const JobOptions& options) {
  Shared shared(options);
  return save_state(shared).serialize();
}

std::string objection(const std::string& introduction, const JobOptions& options) {
  Shared shared(options);
  return difference(State::parse(introduction), save_state(shared), "the newcomer");
}

}  // namespace isochron
