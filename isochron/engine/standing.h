// How far the workers of a job are when they come together anew: the engine's names for what core/replica/progress.h
// has.
#pragma once

#include "isochron/core/replica/progress.h"

namespace isochron {

using Standing = ProgressReport;
using OutOfMemory = MemoryFailure;

}  // namespace isochron
