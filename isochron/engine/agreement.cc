#include "isochron/engine/agreement.h"

#include <stdexcept>
#include <string>

#include "isochron/core/state.h"
#include "isochron/core/trace/json.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

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
        compression(options.gradients.compression == Compression::kNone ? "none" : "bf16") {}

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
  }
};

// A worker as it describes itself.
struct Self {
  std::string kind;
  double weight = 0.0;
  std::int64_t min_batch = 0;
  std::int64_t max_batch = 0;
  std::int64_t granularity = 1;

  void exchange(StateExchange& state) {
    state.field("kind", kind);
    state.field("weight", weight);
    state.field("min_batch", min_batch);
    state.field("max_batch", max_batch);
    state.field("granularity", granularity);
  }
};

void refuse_differences(const std::vector<State>& shared) {
  for (std::size_t rank = 1; rank < shared.size(); ++rank) {
    for (const auto& [name, value] : shared[rank].words) {
      const std::string& first = shared.front().words.at(name);
      if (value != first) {
        throw std::invalid_argument(
            name + " is " + value + " on rank " + std::to_string(rank) + "; permitted: what rank 0 has, " + first);
      }
    }
  }
}

Worker as_worker(const State& state, WorkerId id) {
  Self self;
  restore_state(self, state);
  return {
      .id = id,
      .kind = self.kind,
      .weight = self.weight,
      .min_batch = self.min_batch,
      .max_batch = self.max_batch,
      .granularity = self.granularity};
}

std::vector<State> gather_states(const Group& group, const State& mine) {
  std::vector<State> states;
  for (const std::string& text : all_gather(group, mine.serialize())) {
    states.push_back(State::parse(text));
  }
  return states;
}

}  // namespace

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  Shared shared(options);
  refuse_differences(gather_states(group, save_state(shared)));

  Self self{
      .kind = options.kind,
      .weight = options.weight,
      .min_batch = options.min_batch,
      .max_batch = std::min(options.max_batch, options.global_batch),
      .granularity = options.granularity};
  std::vector<Worker> workers;
  for (const State& state : gather_states(group, save_state(self))) {
    workers.push_back(as_worker(state, workers.size()));
  }
  return workers;
}

bool any_in_pieces(const Group& group, const JobOptions& options) {
  return sum(group, {options.micro_batch > 0 ? 1.0 : 0.0}).front() > 0;
}

}  // namespace isochron
