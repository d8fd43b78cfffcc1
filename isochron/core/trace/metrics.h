// How well a step used its workers: the one definition of every figure that tables, pages, exports and Python show.
//
// One rule for idle workers: only those count that computed samples and whose time is finite and positive. A figure is
// kUnknown if no worker counts. O(workers). Pure functions, which threads may share.
#pragma once

#include <span>

#include "isochron/core/trace/run_log.h"

namespace isochron {

/// mean_k t_k / max_k t_k over the compute times: 1 if all workers were done at the same moment.
[[nodiscard]] double balance(std::span<const WorkerStep> workers);

/// The time that the step's samples would take if every worker kept the speed of this step and none ever waited, over
/// the time that they took: B / sum_k (b_k / t_k) / seconds. In other words: the share of the step in which a worker
/// computed, as a mean over the workers weighted by their speeds.
[[nodiscard]] double utilization(const StepRecord& record);

}  // namespace isochron
