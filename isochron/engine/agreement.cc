#include "isochron/engine/agreement.h"

#include <stdexcept>
#include <string>

#include "isochron/core/state.h"
#include "isochron/engine/job.h"
#include "isochron/engine/standing.h"

namespace isochron {
namespace {

// What all workers must share.
State shared(const JobOptions& options) {
  State state;
  state.words = option_texts(options, kAgreed);
  state.words.emplace("version", ISOCHRON_VERSION);
  return state;
}

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
  return describe(options, options.device_type());
}

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  const std::vector<State> states = gather_states(group, shared(options));
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
  return shared(options).serialize();
}

std::string objection(const std::string& introduction, const JobOptions& options) {
  return difference(State::parse(introduction), shared(options), "the newcomer");
}

}  // namespace isochron
