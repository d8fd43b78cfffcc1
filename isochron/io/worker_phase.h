// How far a worker has come, as its launcher sees it: notes in the job's folder, by the worker's process number.
#pragma once

#include <cstdint>
#include <filesystem>

#include <sys/types.h>

namespace isochron::io {

enum class WorkerPhase : std::uint8_t {
  kStarting,    // it will take part in a job, and publish its steps
  kConnecting,  // it makes a job, and MPI waits for the others
  kConnected,   // the job is there: from now on every wait in it has a time-out
  kMember,      // it takes part: at its first step, or admitted to a job that runs
  kEnded,       // it has done its part, to the end of the job or until it was asked to stop; after kConnected
};

/// Notes the phase of this process in the folder that its environment names; nothing happens if it names none. The end
/// needs no new file, which a full disk would not give. Throws isochron::Error.
void note_worker_phase(WorkerPhase phase);

[[nodiscard]] bool has_reached(const std::filesystem::path& folder, pid_t process, WorkerPhase phase);

}  // namespace isochron::io
