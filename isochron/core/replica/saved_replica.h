// A replica as a value: what checkpoints and transfers between workers hold besides model and optimizer. One schema for
// every front end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/core/replica/epoch_cursor.h"
#include "isochron/core/state.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"

namespace isochron {

struct SavedReplica {
  std::map<std::string, std::string, std::less<>> options;  // what a job that goes on must have as well, by name

  std::vector<Worker> roster;  // as the controller has it: bounds are those that memory permits
  WorkerId next_id = 0;        // of a worker who joins
  State controller;            // of Controller::state
  State rounds;                // of Rounds, with sync local; otherwise empty
  State work;                  // of WorkShares, where shares are dealt by cost; otherwise empty
  MemoryCeilings ceilings;
  std::map<WorkerId, std::int64_t> chunk_sizes;  // that workers found for lack of memory
  std::optional<DataPlace> place;                // none: no data yet
  std::optional<StepRecord> record;              // of the last finished step

  // For a worker that takes over from another of the same run; a new run begins without them.
  bool stopping = false;
  std::int64_t stop_signal = 0;
  std::int64_t rolled_back_for = -1;

  [[nodiscard]] State to_state() const;
  /// Throws std::invalid_argument naming the field if the state is not one of a replica.
  static SavedReplica from_state(const State& state);

  /// Throws std::invalid_argument naming the option if `other`, of this job, has another value.
  void check_options(const SavedReplica& other) const;
  /// Gives `workers` the ids of those who had their ranks, and new ones to those left over. Returns the id after those.
  WorkerId give_ids(std::vector<Worker>& workers) const;
};

}  // namespace isochron
