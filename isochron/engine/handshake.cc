#include "isochron/engine/handshake.h"

#include <string>

#include "isochron/engine/job.h"
#include "isochron/io/process_usage.h"

namespace isochron {

Introduction introduce(const JobOptions& options) {
  return Introduction::of(options, ISOCHRON_VERSION, options.device_type(), io::host_name());
}

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  std::vector<Introduction> introductions;
  for (const std::string& text : all_gather(group, introduce(options).encode())) {
    introductions.push_back(Introduction::decode(text));
  }
  return agree(introductions);
}

}  // namespace isochron
