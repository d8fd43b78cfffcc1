// A controller of Python's arguments, for whatever is bound that has one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/worker.h"

namespace isochron::python {

inline Controller make_controller(
    std::vector<Worker> workers,
    std::int64_t global_batch,
    std::string policy,
    const std::string& rate,
    std::int64_t reference_batch,
    double warmup_steps) {
  const RateOptions options{
      .rule = parse_rate_rule(rate), .reference_batch = reference_batch, .warmup_steps = warmup_steps};
  return {
      {.workers = std::move(workers), .global_batch = global_batch}, {.policy = std::move(policy), .rate = options}};
}

}  // namespace isochron::python
