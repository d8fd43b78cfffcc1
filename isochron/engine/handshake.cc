#include "isochron/engine/handshake.h"

#include <string>

#include "isochron/engine/job.h"
#include "isochron/io/former_run_file.h"
#include "isochron/io/process_usage.h"

namespace isochron {

Introduction introduce(const JobOptions& options) {
  return Introduction::of(options, ISOCHRON_VERSION, options.device_type(), io::host_name());
}

std::vector<Worker> agree(const Group& group, const JobOptions& options) {
  std::vector<Introduction> introductions;
  Introduction mine = introduce(options);
  io::add_former_run(mine, options, group->getRank() == 0);
  for (const std::string& text : all_gather(group, mine.encode())) {
    introductions.push_back(Introduction::decode(text));
  }
  return agree(introductions);
}

}  // namespace isochron
