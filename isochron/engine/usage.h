// What this process takes of its machine.
#pragma once

namespace isochron {

// CPU time of all threads, in seconds.
double cpu_seconds();

// Resident memory over the machine's, 0..1.
double memory_share();

}  // namespace isochron
