#include "isochron/engine/handshake.h"

#include <algorithm>
#include <string>

#include "isochron/core/trace/json.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

std::string sync_text(const JobOptions& options) {
  if (options.sync == Sync::kBsp) {
    return "bsp";
  }
  const AsyncOptions& async = options.async;
  return (options.sync == Sync::kSsp ? "ssp " + std::to_string(async.staleness) : "asp") + ", " +
         std::to_string(async.servers) + " servers, rate " + std::string(to_string(async.rate)) +
         (async.momentum_correction ? ", momentum corrected" : "");
}

std::string rate_text(const RateOptions& rate) {
  return std::string(to_string(rate.rule)) + " for " + std::to_string(rate.reference_batch) + ", warm-up " +
         json_number(rate.warmup_steps);
}

}  // namespace

Introduction introduce(const JobOptions& options) {
  return {
      .shared =
          {{"version", ISOCHRON_VERSION},
           {"global_batch", std::to_string(options.global_batch)},
           {"policy", options.policy},
           {"rate", rate_text(options.rate)},
           {"weighting", std::string(to_string(options.weighting))},
           {"seed", std::to_string(options.seed)},
           {"last_batch", std::string(to_string(options.last_batch))},
           {"sync_batch_norm", options.sync_batch_norm ? "yes" : "no"},
           {"compression", options.gradients.compression == Compression::kNone ? "none" : "bf16"},
           {"sync", sync_text(options)}},
      .worker = {
          .kind = options.kind,
          .weight = options.weight,
          .min_batch = options.min_batch,
          .max_batch = std::min(options.max_batch, options.global_batch),
          .granularity = options.granularity,
          .name = options.name}};
}

ReplicaOptions replica_options(const JobOptions& options) {
  return {
      .global_batch = options.global_batch,
      .policy = options.policy,
      .rate = options.rate,
      .weighting = options.weighting,
      .seed = options.seed,
      .last_batch = options.last_batch,
      .on_non_finite = options.numbers};
}

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  std::vector<Introduction> introductions;
  for (const std::string& text : all_gather(group, introduce(options).encode())) {
    introductions.push_back(Introduction::decode(text));
  }
  return agree(introductions);
}

}  // namespace isochron
