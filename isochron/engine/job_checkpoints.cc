#include "isochron/engine/job_checkpoints.h"

#include <map>
#include <string>

#include "isochron/core/error.h"
#include "isochron/engine/checkpoint_transfer.h"

namespace isochron {

void JobCheckpoints::save(const std::filesystem::path& path) {
  std::string failure;
  std::map<std::string, at::Tensor> owed;
  const auto write = [&] {
    owed = model_.gather_owed();
    failure = write_on_first(path, membership_.group(), [&] {
      Checkpoint checkpoint = model_.pack(datasets_.state());
      checkpoint.tensors.insert(owed.begin(), owed.end());
      return checkpoint;
    });
  };
  while (!recovery_.try_together(write)) {
  }
  model_.take_owed(owed);
  if (!failure.empty()) {
    throw Error(failure);
  }
  last_ = path;
}

bool JobCheckpoints::save_before_step(const std::filesystem::path& folder, std::int64_t step) const {
  if (has_checkpoint_from(folder, step)) {
    return false;
  }
  write_checkpoint(checkpoint_path(folder, step), model_.pack_before_step(datasets_.state_before_step()));
  return true;
}

State JobCheckpoints::read(const std::filesystem::path& path) {
  const Checkpoint checkpoint = read_everywhere(path, membership_.group());
  State rest = model_.unpack(checkpoint, path.string());
  model_.take_owed(checkpoint.tensors);
  return rest;
}

void JobCheckpoints::restore(const std::filesystem::path& path) {
  datasets_.restore(read(path));
  last_ = path;
}

std::vector<EventRecord> JobCheckpoints::roll_back(const std::string& reason, double now) {
  return datasets_.roll_back(read(last_), reason, now);
}

}  // namespace isochron
