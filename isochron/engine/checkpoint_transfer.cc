#include "isochron/engine/checkpoint_transfer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/core/error.h"
#include "isochron/io/checkpoint_file.h"

namespace isochron {
namespace {

constexpr int kTransferTag = 11;

// What the others need to receive a checkpoint: the index of its file.
std::string outline(const CheckpointParts& checkpoint) {
  std::vector<io::StoredPart> stored;
  stored.reserve(checkpoint.parts.size());
  for (const auto& [name, content] : checkpoint.parts) {
    stored.push_back({.name = name, .layout = content.layout});
  }
  return io::encode_index(stored);
}

// All parts of a checkpoint one after the other, as they travel.
at::Tensor flat_bytes(const CheckpointParts& checkpoint) {
  std::int64_t size = 0;
  for (const auto& [name, content] : checkpoint.parts) {
    size += std::ssize(content.bytes);
  }
  at::Tensor flat = at::empty({size}, at::kByte);
  auto* next = static_cast<std::byte*>(flat.mutable_data_ptr());
  for (const auto& [name, content] : checkpoint.parts) {
    next = std::ranges::copy(content.bytes, next).out;
  }
  return flat;
}

// Room for what another worker's outline tells.
class Arriving {
 public:
  explicit Arriving(const std::string& outline)
      : parts_(io::decode_index(std::as_bytes(std::span(outline)), std::nullopt)) {
    const std::uint64_t bytes = parts_.empty() ? 0 : parts_.back().offset + parts_.back().bytes;
    flat_.push_back(at::empty({static_cast<std::int64_t>(bytes)}, at::kByte));
  }

  std::vector<at::Tensor>& flat() { return flat_; }

  Checkpoint take() const {
    Checkpoint checkpoint;
    const std::span flat(static_cast<const std::byte*>(flat_.front().const_data_ptr()), flat_.front().nbytes());
    for (const io::StoredPart& part : parts_) {
      std::ranges::copy(flat.subspan(part.offset, part.bytes), add_part(part, checkpoint).begin());
    }
    return checkpoint;
  }

 private:
  std::vector<io::StoredPart> parts_;
  std::vector<at::Tensor> flat_;  // one
};

Checkpoint send_to_all(const Group& group, const Checkpoint& checkpoint) {
  const CheckpointParts mine = parts_of(checkpoint);
  Arriving arriving(broadcast(group, outline(mine)));
  if (group->getRank() == 0) {
    arriving.flat().front() = flat_bytes(mine);
  }
  if (arriving.flat().front().numel() > 0) {
    group->broadcast(arriving.flat())->wait();
  }
  return arriving.take();
}

}  // namespace

std::string write_on_first(
    const std::filesystem::path& path, const Group& group, const std::function<Checkpoint()>& make) {
  std::string failure;
  if (group->getRank() == 0) {
    try {
      write_checkpoint(path, make());
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  return broadcast(group, failure);
}

Checkpoint read_everywhere(const std::filesystem::path& path, const Group& group) {
  Checkpoint checkpoint;
  std::string failure;
  if (group->getRank() == 0) {
    try {
      checkpoint = read_checkpoint(path);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  failure = broadcast(group, failure);
  if (!failure.empty()) {
    throw Error(failure);
  }
  return send_to_all(group, checkpoint);
}

void send_checkpoint(const Group& group, const Checkpoint& checkpoint, int to) {
  const CheckpointParts parts = parts_of(checkpoint);
  send_text(group, outline(parts), to);
  std::vector<at::Tensor> flat{flat_bytes(parts)};
  group->send(flat, to, kTransferTag)->wait();
}

Checkpoint receive_checkpoint(const Group& group, int from) {
  Arriving arriving(receive_text(group, from));
  group->recv(arriving.flat(), from, kTransferTag)->wait();
  return arriving.take();
}

}  // namespace isochron
