#include "isochron/worker/lane.h"

#include <stdexcept>

#include "isochron/cli/policy_list.h"
#include "isochron/core/policy/registry.h"

namespace isochron::worker {
namespace {

void set_part(const std::string& word, Lane& lane) {
  for (const auto& [weighting, name] : kWeightingNames) {
    if (word == name) {
      lane.weighting = weighting;
      return;
    }
  }
  try {
    lane.rate = parse_rate_rule(word);
  } catch (const std::invalid_argument&) {
    throw std::invalid_argument(
        "'+" + word + "' in '" + lane.label + "'; permitted: +exact, +mean, +none, +linear, +sqrt, +legw, +adascale");
  }
}

Lane parse_lane(const std::string& text, const Lane& defaults) {
  Lane lane = defaults;
  lane.label = text;
  std::size_t plus = text.find('+');
  lane.policy = text.substr(0, plus);
  while (plus != std::string::npos) {
    const std::size_t next = text.find('+', plus + 1);
    set_part(text.substr(plus + 1, next - plus - 1), lane);
    plus = next;
  }
  return lane;
}

}  // namespace

std::vector<Lane> parse_lanes(const std::string& text, const Lane& defaults) {
  std::vector<Lane> lanes;
  for (const std::string& specification : cli::split_policies(text)) {
    Lane lane = parse_lane(specification, defaults);
    if (lane.policy != "oracle") {
      (void)make_policy(lane.policy);
    }
    for (const Lane& other : lanes) {
      if (other.label == lane.label) {
        throw std::invalid_argument("'" + lane.label + "' is there twice; permitted: once");
      }
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

}  // namespace isochron::worker
