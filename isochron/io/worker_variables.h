// The environment variables by which a launcher tells a worker what the cluster says of it. They are defaults: what the
// worker's command line says holds.
#pragma once

namespace isochron::io {

constexpr const char* kStepFileVariable = "ISOCHRON_STEP_FILE";  // to publish the step in (io/step_file.h)
constexpr const char* kWorkerNameVariable = "ISOCHRON_WORKER_NAME";
constexpr const char* kJobFolderVariable = "ISOCHRON_JOB_FOLDER";  // where requests to join are (io/join_requests.h)

// With a cluster only.
constexpr const char* kWorkerKindVariable = "ISOCHRON_WORKER_KIND";
constexpr const char* kWorkerCoresVariable = "ISOCHRON_WORKER_CORES";  // at the start: its nominal speed
constexpr const char* kMinBatchVariable = "ISOCHRON_MIN_BATCH";
constexpr const char* kMaxBatchVariable = "ISOCHRON_MAX_BATCH";  // not there: no limit
constexpr const char* kGranularityVariable = "ISOCHRON_GRANULARITY";

}  // namespace isochron::io
