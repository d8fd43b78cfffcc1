// Profiles as JSON files: what `isochron profile` writes and `isochron plan` reads. docs/plan.md has the schema.
//
// Whatever the bytes, the answer is a valid profile or std::invalid_argument with "FILE: …" naming the key and what is
// permitted. Keys that are not known are ignored, since newer versions of a schema may add some. Limits, checked before
// memory is taken: 1 MiB of text, four values inside one another.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "isochron/plan/profile.h"

namespace isochron::io {

/// Raised when a field changes its meaning; new fields alone do not raise it.
inline constexpr int kProfileSchema = 1;

/// Ends with a line feed. `version` is that of the program that measured.
[[nodiscard]] std::string to_json(const plan::Profile& profile, std::string_view version);

/// `file` is the name that errors carry.
[[nodiscard]] plan::Profile parse_profile(std::string_view text, const std::string& file);

/// Throws isochron::Error naming the file if it cannot be read; otherwise like parse_profile.
[[nodiscard]] plan::Profile read_profile_file(const std::filesystem::path& path);

}  // namespace isochron::io
