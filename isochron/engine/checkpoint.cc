#include "isochron/engine/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "isochron/core/error.h"
#include "isochron/io/checkpoint_file.h"
#include "isochron/io/output_file.h"

namespace isochron {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kText = "text";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kExtension = ".ckpt";

// The names that Python's torch has for them.
constexpr std::array<std::pair<std::string_view, at::ScalarType>, 17> kTypes{{
    {"bool", at::kBool},
    {"uint8", at::kByte},
    {"uint16", at::kUInt16},
    {"uint32", at::kUInt32},
    {"uint64", at::kUInt64},
    {"int8", at::kChar},
    {"int16", at::kShort},
    {"int32", at::kInt},
    {"int64", at::kLong},
    {"float8_e4m3fn", at::kFloat8_e4m3fn},
    {"float8_e5m2", at::kFloat8_e5m2},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"complex64", at::kComplexFloat},
    {"complex128", at::kComplexDouble},
}};

std::string type_name(const std::string& name, const at::Tensor& tensor) {
  const auto* const type =
      std::ranges::find(kTypes, tensor.scalar_type(), [](const auto& entry) { return entry.second; });
  if (type == kTypes.end() || tensor.layout() != at::kStrided) {
    throw std::invalid_argument(
        "tensor " + name + " is of type " + tensor.toString() + "; permitted: dense tensors of plain numbers");
  }
  return std::string(type->first);
}

std::span<std::byte> tensor_bytes(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

std::ifstream open(const fs::path& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw Error("cannot read checkpoint " + path.string() + ": " + std::strerror(errno));
  }
  return stream;
}

std::span<std::byte> room_for(const io::StoredPart& part, Checkpoint& checkpoint, const fs::path& path) {
  try {
    return add_part(part, checkpoint);
  } catch (const Error& error) {
    throw Error("cannot read checkpoint " + path.string() + ": " + error.what());
  }
}

// The step of a name that checkpoint_path gives; nothing for others.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kExtension)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* const end = name.data() + name.size() - kExtension.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc{} && rest == end ? std::optional(step) : std::nullopt;
}

// Newest first; none if there is no such folder.
std::vector<fs::path> checkpoints_of(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (const auto step = step_of(entry.path())) {
      found.emplace_back(*step, entry.path());
    }
  }
  std::ranges::sort(found, std::greater<>{});
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace

CheckpointParts parts_of(const Checkpoint& checkpoint) {
  CheckpointParts all;
  for (const auto& [name, text] : checkpoint.texts) {
    const auto bytes = std::as_bytes(std::span(text));
    all.parts[name] = {.layout = {.type = std::string(kText), .sizes = {std::ssize(text)}}, .bytes = bytes};
  }
  for (const auto& [name, tensor] : checkpoint.tensors) {
    ISO_CHECK(!all.parts.contains(name), "a text and a tensor are both called " + name);
    const std::string type = type_name(name, tensor);
    const at::Tensor& host = all.on_host.emplace_back(tensor.detach().cpu().contiguous().resolve_conj().resolve_neg());
    all.parts[name] = {
        .layout =
            {.type = type,
             .element_bytes = static_cast<std::uint8_t>(host.element_size()),
             .sizes = host.sizes().vec()},
        .bytes = tensor_bytes(host)};
  }
  return all;
}

std::span<std::byte> add_part(const io::StoredPart& part, Checkpoint& checkpoint) {
  if (part.layout.type == kText) {
    std::string& text = checkpoint.texts[part.name];
    text.resize(part.bytes);
    return std::as_writable_bytes(std::span(text));
  }
  const auto* const type = std::ranges::find(kTypes, part.layout.type, [](const auto& entry) { return entry.first; });
  if (type == kTypes.end() || c10::elementSize(type->second) != part.layout.element_bytes) {
    throw Error("part '" + part.name + "' is of the unknown type " + part.layout.type);
  }
  return tensor_bytes(checkpoint.tensors[part.name] = at::empty(part.layout.sizes, type->second));
}

void write_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  io::write_checkpoint_file(path, parts_of(checkpoint).parts);
}

Checkpoint read_checkpoint(const fs::path& path) {
  std::ifstream stream = open(path);
  io::CheckpointReader reader(stream, path.string());
  Checkpoint checkpoint;
  for (const io::StoredPart& part : reader.parts()) {
    reader.read(part, room_for(part, checkpoint, path));
  }
  return checkpoint;
}

fs::path checkpoint_path(const fs::path& folder, std::int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, 9 - std::min<std::size_t>(digits.size(), 9), '0');
  return folder / (std::string(kPrefix) + digits + std::string(kExtension));
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder, const std::function<void(const std::string&)>& warn) {
  for (fs::path& path : checkpoints_of(folder)) {
    try {
      std::ifstream stream = open(path);
      io::CheckpointReader(stream, path.string()).verify();
      return std::move(path);
    } catch (const Error& error) {
      if (warn) {
        warn(error.what());
      }
    }
  }
  return std::nullopt;
}

bool has_checkpoint_from(const fs::path& folder, std::int64_t step) {
  return std::ranges::any_of(checkpoints_of(folder), [&](const fs::path& path) { return step_of(path) >= step; });
}

void remove_old_checkpoints(const fs::path& folder, std::int64_t keep) {
  const std::vector<fs::path> paths = checkpoints_of(folder);
  for (auto i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 0)); i < paths.size(); ++i) {
    std::error_code gone;
    fs::remove(paths[i], gone);
  }
  io::remove_abandoned_outputs(folder, kPrefix);
}

}  // namespace isochron
