// A job as a value: into a checkpoint and back, and from one worker to another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/state.h"
#include "isochron/core/worker.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/exchange.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace isochron {

struct JobOptions;

// What there is besides model and optimizer.
struct SavedJob {
  std::int64_t global_batch = 0;
  std::string seed;  // as text: a State's numbers hold 53 bits
  std::string last_batch;
  std::string policy;
  std::vector<Worker> roster;
  WorkerId next_id = 0;
  std::int64_t dataset_size = 0;  // 0: no loader yet, so that sampler and ledger say nothing
  SamplerState sampler;
  State ledger;
  State controller;
  State ceilings;
  std::string record;  // of the last step, as in a run log; empty: none

  // Throws std::invalid_argument naming what differs.
  void check_options(const JobOptions& options) const;
  void check_dataset(std::int64_t size) const;

  // The controller as it was, with the workers of then.
  Controller restored_controller(const JobOptions& options) const;
  // Gives `workers` the ids of those who had their places; those left over get new ones. `next` is the id after those.
  void give_ids(std::vector<Worker>& workers, WorkerId& next) const;
};

Checkpoint pack(SavedJob job, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);
// Fills model and optimizer. `name` is what errors call it.
SavedJob unpack(
    const Checkpoint& checkpoint,
    const std::string& name,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer);

// Collective; rank 0 reads the file, so it need not be visible to the others. Throws isochron::Error on all workers.
Checkpoint read_everywhere(const std::filesystem::path& path, const Group& group);

// From one worker to another, who calls receive_checkpoint().
void send_checkpoint(const Group& group, const Checkpoint& checkpoint, int to);
Checkpoint receive_checkpoint(const Group& group, int from);

}  // namespace isochron
