// What a run log says of the speeds of its workers (core/trace/former_run.h).
#pragma once

#include <filesystem>
#include <vector>

#include "isochron/core/job_settings.h"
#include "isochron/core/replica/introduction.h"
#include "isochron/core/trace/former_run.h"

namespace isochron::io {

/// Throws std::invalid_argument naming the option start_from, the file and what is wrong with it.
[[nodiscard]] std::vector<FormerSpeed> read_former_run(const std::filesystem::path& path);

/// The first worker reads the file that start_from names, for all of them. A file that cannot be read is part of what
/// it says, since the others wait to hear it; agree() then throws on all.
void add_former_run(Introduction& introduction, const JobSettings& settings, bool first);

}  // namespace isochron::io
