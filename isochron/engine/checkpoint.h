// A checkpoint: named tensors and named texts in one file, checksummed and without any code (io/checkpoint_file.h has
// the format). Written beside its place, flushed to the disk and renamed, so that a name always holds a whole file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/io/checkpoint_file.h"

namespace isochron {

// A name is for a text or a tensor, not both.
struct Checkpoint {
  std::map<std::string, std::string> texts;
  std::map<std::string, at::Tensor> tensors;  // on the CPU once read; any device when written
};

// A checkpoint as its parts, which lie in it or beside it, in the order of their names.
struct CheckpointParts {
  std::map<std::string, io::PartContent> parts;
  std::vector<at::Tensor> on_host;  // keeps the bytes of tensors that lie elsewhere
};
// Tensors are dense and of plain numbers: others are std::invalid_argument.
CheckpointParts parts_of(const Checkpoint& checkpoint);

// Room for a part, and where its bytes go. Throws isochron::Error if its type is not known.
std::span<std::byte> add_part(const io::StoredPart& part, Checkpoint& checkpoint);

// Throws isochron::Error naming the file: no permission, no space. What was there before is intact then. Tensors are
// dense and of plain numbers: others are std::invalid_argument.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws isochron::Error naming the file and the part: not a checkpoint, cut short, checksum wrong (both values).
Checkpoint read_checkpoint(const std::filesystem::path& path);

// "step-000000120.ckpt" in a folder.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

// The newest whole checkpoint of a folder; damaged ones are passed over, each with a word to `warn`. Nothing if there
// is none.
std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder, const std::function<void(const std::string&)>& warn = {});

// Whether a folder has a checkpoint of that step or a later one, by their names.
bool has_checkpoint_from(const std::filesystem::path& folder, std::int64_t step);

// Removes all but the newest `keep` checkpoints of a folder, and what a writer that was killed has left behind.
void remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t keep);

}  // namespace isochron
