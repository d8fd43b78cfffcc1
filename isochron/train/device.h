// The device that a worker computes on, by its name on the command line.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace isochron::train {

// "cpu"; "cuda:N"; "cuda" (the GPU of this worker's number on its host, counted round); "auto" (the same if there is a
// GPU, else the CPU). Throws std::invalid_argument naming the value and what is permitted, or that there is no such
// GPU.
c10::Device choose_device(const std::string& name);

}  // namespace isochron::train
