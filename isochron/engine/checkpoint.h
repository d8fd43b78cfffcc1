// A checkpoint file: named tensors and named texts, checksummed, without any code in it.
//
// Layout, all integers little-endian: magic "ISOCKPT1"; an index (names, element types, sizes, offsets, CRC-32 of every
// part); the parts; a CRC-32 of the index at the front. Written beside its place, flushed to the disk and renamed, so
// that a name always holds a whole file. Reading checks sizes before it takes memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

namespace isochron {

struct Checkpoint {
  std::map<std::string, std::string> texts;
  std::map<std::string, at::Tensor> tensors;  // on the CPU once read; any device when written
};

// Throws isochron::Error naming the file: no permission, no space. What was there before is intact then.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws isochron::Error naming the file and the part: not a checkpoint, cut short, checksum wrong (both values).
Checkpoint read_checkpoint(const std::filesystem::path& path);

// "step-000000120.ckpt" in a folder.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

// The newest whole checkpoint of a folder; damaged ones are passed over, each with a word to `warn`. Nothing if there is
// none.
std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder, const std::function<void(const std::string&)>& warn = {});

// Removes all but the newest `keep` checkpoints of a folder.
void remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t keep);

}  // namespace isochron
