// The environment variables by which a launcher tells a worker what the cluster says of it. They are defaults: what the
// worker's command line says holds.
#pragma once

#include <cstdint>
#include <optional>

namespace isochron::io {

constexpr const char* kStepFileVariable = "ISOCHRON_STEP_FILE";  // to publish the step in (io/step_file.h)
constexpr const char* kWorkerNameVariable = "ISOCHRON_WORKER_NAME";
constexpr const char* kJobFolderVariable = "ISOCHRON_JOB_FOLDER";  // of io/join_requests.h, io/worker_phase.h

// With a cluster only.
constexpr const char* kClusterVariable = "ISOCHRON_CLUSTER";  // its name
constexpr const char* kWorkerKindVariable = "ISOCHRON_WORKER_KIND";
constexpr const char* kWorkerCoresVariable = "ISOCHRON_WORKER_CORES";  // at the start: its nominal speed
constexpr const char* kMinBatchVariable = "ISOCHRON_MIN_BATCH";
constexpr const char* kMaxBatchVariable = "ISOCHRON_MAX_BATCH";  // not there: no limit
constexpr const char* kGranularityVariable = "ISOCHRON_GRANULARITY";

/// What the variable holds; nothing if it is not set. Whoever starts a worker may have set it to anything: throws
/// std::invalid_argument, "VARIABLE is 'x'; permitted: …".
[[nodiscard]] std::optional<std::int64_t> whole_variable(const char* name, std::int64_t low, std::int64_t high);
/// A finite number above 0.
[[nodiscard]] std::optional<double> positive_variable(const char* name);

}  // namespace isochron::io
