// What can happen to a worker or to a job, and the name that the run log has for it. This is the only table of the two:
// whoever writes, counts or draws events asks it. A log may hold names that this version does not know, so an
// EventRecord keeps the name itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace isochron {

enum class Event : std::uint8_t {
  kDeath,        // the worker is gone
  kKill,         // the same, in the simulator
  kJoin,         // the worker takes part from this step on
  kStall,        // the worker does not answer
  kStop,         // the same, in the simulator
  kContinue,     // it answers again
  kEvicted,      // it kept the others waiting for too long, and they went on without it
  kSpeed,        // its speed was changed from outside
  kOutOfMemory,  // it ran out of memory and takes smaller batches
  kNonFinite,    // a loss or a gradient was not finite
  kSkipped,      // a sample could not be read and was left out
  kRollback,     // the job goes on from this step with an earlier state
  kResume,       // another process goes on with the log from this step
  kUnlogged,     // the log could not be written for a while
  kEpochEnd,     // the epoch ends with the last step's samples: a stream has no more, or the loop wants none
  kOtherData,    // the steps from the log's last one to this one were on other data, and are in another log
  kForecast,     // what another split of the batch would gain, in words
};

struct EventKind {
  Event event = Event::kDeath;
  std::string_view name;        // as the run log spells it
  bool removes_worker = false;  // the worker takes no part in later steps
  bool concerns_job = false;    // it is about no worker in particular
  bool sets_step = false;       // its step is the number of the next step
};

/// In the order of the enumeration.
inline constexpr std::array<EventKind, 17> kEvents = {{
    {.event = Event::kDeath, .name = "death", .removes_worker = true},
    {.event = Event::kKill, .name = "kill", .removes_worker = true},
    {.event = Event::kJoin, .name = "join"},
    {.event = Event::kStall, .name = "stall"},
    {.event = Event::kStop, .name = "stop"},
    {.event = Event::kContinue, .name = "continue"},
    {.event = Event::kEvicted, .name = "evicted", .removes_worker = true},
    {.event = Event::kSpeed, .name = "speed"},
    {.event = Event::kOutOfMemory, .name = "out-of-memory"},
    {.event = Event::kNonFinite, .name = "numbers", .concerns_job = true},
    {.event = Event::kSkipped, .name = "skipped"},
    {.event = Event::kRollback, .name = "rollback", .concerns_job = true, .sets_step = true},
    {.event = Event::kResume, .name = "resume", .concerns_job = true, .sets_step = true},
    {.event = Event::kUnlogged, .name = "unlogged", .concerns_job = true},
    {.event = Event::kEpochEnd, .name = "epoch-end", .concerns_job = true},
    {.event = Event::kOtherData, .name = "other-data", .concerns_job = true, .sets_step = true},
    {.event = Event::kForecast, .name = "forecast", .concerns_job = true},
}};

constexpr std::string_view to_string(Event event) {
  return kEvents[static_cast<std::size_t>(event)].name;
}

/// Null for a name that nobody here knows.
constexpr const EventKind* find_event(std::string_view name) {
  for (const EventKind& kind : kEvents) {
    if (kind.name == name) {
      return &kind;
    }
  }
  return nullptr;
}

}  // namespace isochron
