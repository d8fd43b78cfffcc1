// Checkpoints between the workers of a job, and between them and a file that only the first one need see.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "isochron/engine/checkpoint.h"
#include "isochron/engine/exchange.h"

namespace isochron {

// Collective; rank 0 makes the checkpoint and writes it. Returns on all workers why it failed, or nothing.
std::string write_on_first(
    const std::filesystem::path& path, const Group& group, const std::function<Checkpoint()>& make);

// Collective; rank 0 reads the file. Throws isochron::Error on all workers.
Checkpoint read_everywhere(const std::filesystem::path& path, const Group& group);

// From one worker to another, who calls receive_checkpoint().
void send_checkpoint(const Group& group, const Checkpoint& checkpoint, int to);
Checkpoint receive_checkpoint(const Group& group, int from);

}  // namespace isochron
