#include "isochron/engine/job_checkpoints.h"

#include "isochron/core/error.h"
#include "isochron/engine/checkpoint_transfer.h"

namespace isochron {

void JobCheckpoints::save(const std::filesystem::path& path) {
  std::string failure;
  const auto write = [&] {
    failure = write_on_first(path, membership_.group(), [this] { return model_.pack(datasets_.state()); });
  };
  while (!recovery_.try_together(write)) {
  }
  if (!failure.empty()) {
    throw Error(failure);
  }
  last_ = path;
}

State JobCheckpoints::read(const std::filesystem::path& path) {
  return model_.unpack(read_everywhere(path, membership_.group()), path.string());
}

void JobCheckpoints::restore(const std::filesystem::path& path) {
  datasets_.restore(read(path));
  last_ = path;
}

std::vector<EventRecord> JobCheckpoints::roll_back(const std::string& reason, double now) {
  return datasets_.roll_back(read(last_), reason, now);
}

}  // namespace isochron
