// A run in the Trace Event Format that chrome://tracing and ui.perfetto.dev open: one track per worker with its
// compute, wait and exchange spans, an instant with the reason wherever the split changes, and a counter per worker for
// its batch size.
//
// The text grows with the run and the memory does not: each call returns the part to append to the file. The parts,
// from begin() to end(), make one JSON document; a file that lacks its end() still opens. O(workers) per step. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "isochron/core/trace/run_log.h"

namespace isochron {

class ChromeTrace {
 public:
  explicit ChromeTrace(RunHeader header) : header_(std::move(header)) {}

  /// Opens the document and names the tracks.
  std::string begin();
  std::string add(const StepRecord& record);
  std::string add(const UpdateRecord& record);
  std::string add(const EventRecord& record);
  std::string end() { return "\n]}\n"; }

 private:
  struct Track {
    std::string name;
    std::int64_t batch = -1;  // the counter's last value
  };
  /// The worker's track; one that neither the header nor a join named goes by its id.
  Track& track(WorkerId worker);
  std::string shares(std::span<const WorkerStep> workers, std::int64_t step, bool in_step);

  RunHeader header_;
  std::map<WorkerId, Track> tracks_;
};

}  // namespace isochron
