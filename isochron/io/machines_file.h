// Machines files: what there is to train on, as TOML for `isochron plan`.
//
//   [[machine]]
//   name = "desk"                    # optional; "machine-0", "machine-1", … by default
//   count = 2                        # of this kind
//   speed = 0.5                      # against the machine of the model's profile; 1 by default. Or:
//   profile = "desk.json"            # its own of the same model, relative to this file
//   max_batch = 256                  # also min_batch and granularity. Or:
//   memory = "8gbyte"                # what the profile says fits
//   noise = 0.05                     # standard deviation of the logarithm of times; the profile's by default
//   network = { rate = "1gbit", delay = "200us" }
//   price_per_hour = 0.40
//
// Whatever the bytes, the answer is valid machines or std::invalid_argument with "FILE:LINE: …" naming the key, the
// value and what is permitted. Unknown keys are refused. At most 10,000 machines; toml_file.h has the other limits.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/plan/machine.h"

namespace isochron::io {

/// Gives the profile of that name, or throws std::invalid_argument.
using FindProfile = std::function<plan::Profile(const std::string& name)>;

/// `file` is the name that errors carry, `common` the profile of machines without their own.
[[nodiscard]] std::vector<plan::Group> parse_machines(
    std::string_view text, const std::string& file, const plan::Profile& common, const FindProfile& find_profile);

/// Throws isochron::Error naming the file if it cannot be read; otherwise like parse_machines.
[[nodiscard]] std::vector<plan::Group> read_machines_file(
    const std::filesystem::path& path, const plan::Profile& common);

}  // namespace isochron::io
