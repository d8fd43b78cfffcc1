#include "isochron/server/knowledge.h"

#include <algorithm>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

void require(bool holds, const char* what) {
  if (!holds) {
    throw Error(std::string("what another worker knows of the job is impossible: ") + what);
  }
}

bool are_positions(std::int64_t first, std::int64_t last, std::int64_t samples) {
  return first >= 0 && first <= last && last <= samples;
}

}  // namespace

void require_possible(const Knowledge& knowledge, std::int64_t chunks, std::int64_t samples) {
  require(are_positions(0, knowledge.barrier_position, samples), "its barrier is not in the epoch");
  require(are_positions(knowledge.holds_first, knowledge.holds_last, samples), "its samples are not in the epoch");
  require(knowledge.rounds >= 0, "a number of rounds below 0");
  require(
      std::ranges::all_of(knowledge.chunks, [chunks](std::int64_t chunk) { return chunk >= 0 && chunk < chunks; }),
      "a chunk that the parameters do not have");
  require(
      std::ranges::all_of(
          knowledge.arrivals, [&](const Provenance& from) { return are_positions(from.first, from.last, samples); }),
      "an update of samples that are not in the epoch");
  require(
      std::ranges::all_of(
          knowledge.records,
          [&](const UpdateRecord& record) {
            const std::int64_t batch = record.worker.batch;
            return batch >= 0 && batch <= samples && record.position >= 0 && record.position <= samples - batch;
          }),
      "a record of samples that are not in the epoch");
}

}  // namespace isochron::server
