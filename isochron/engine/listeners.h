// Those whom the options of a job name as listeners hear of what happens; there may be none.
#pragma once

#include <span>
#include <string>

#include "isochron/engine/job.h"

namespace isochron {

inline void tell_step(const JobOptions& options, const StepRecord& record) {
  if (options.on_step) {
    options.on_step(record);
  }
}

inline void tell_events(const JobOptions& options, std::span<const EventRecord> events) {
  for (const EventRecord& event : events) {
    if (options.on_event) {
      options.on_event(event);
    }
  }
}

inline void warn(const JobOptions& options, const std::string& text) {
  if (options.warn) {
    options.warn(text);
  }
}

}  // namespace isochron
