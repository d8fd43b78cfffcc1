#include "isochron/core/policy/per_worker.h"

#include <unordered_map>

namespace isochron {

Succession::Succession(const std::vector<WorkerId>& before, const Roster& after) {
  std::unordered_map<WorkerId, std::size_t> places;
  for (std::size_t place = 0; place < before.size(); ++place) {
    places.emplace(before[place], place);
  }
  predecessors_.reserve(after.workers.size());
  for (const Worker& worker : after.workers) {
    const auto found = places.find(worker.id);
    predecessors_.push_back(found == places.end() ? kNewcomer : found->second);
  }
}

std::vector<WorkerId> ids_of(const Roster& roster) {
  std::vector<WorkerId> ids;
  ids.reserve(roster.workers.size());
  for (const Worker& worker : roster.workers) {
    ids.push_back(worker.id);
  }
  return ids;
}

}  // namespace isochron
