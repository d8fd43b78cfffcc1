// A job as a checkpoint and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "isochron/core/policy/controller.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/state.h"
#include "isochron/engine/exchange.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace isochron {

struct JobOptions;

// What a checkpoint says besides model and optimizer.
struct SavedJob {
  std::int64_t global_batch = 0;
  std::string seed;  // as text: a State's numbers hold 53 bits
  std::string last_batch;
  std::string policy;
  std::int64_t workers = 0;
  std::int64_t dataset_size = 0;  // 0: no loader yet, so that sampler and ledger say nothing
  SamplerState sampler;
  State ledger;
  State controller;

  // Throws std::invalid_argument naming what differs.
  void check_options(const JobOptions& options) const;
  void check_dataset(std::int64_t size) const;
  // Into a controller of any number of workers; what was learned of those that are gone is dropped.
  void restore(Controller& into, const JobOptions& options) const;
};

// Throws isochron::Error naming the file.
void save_job(
    const std::filesystem::path& path,
    const SavedJob& job,
    const torch::nn::Module& model,
    const torch::optim::Optimizer& optimizer);

// Collective; rank 0 reads the file, so it need not be visible to the others. Fills model and optimizer. Throws
// isochron::Error on all workers.
SavedJob load_job(
    const std::filesystem::path& path,
    const Group& group,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer);

}  // namespace isochron
