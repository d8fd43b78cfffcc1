// Checkpoints come from outside: a state whose numbers were made up is refused, or does no harm.
#include "tests/fuzz/hostile_state.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/policy/registry.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

std::vector<std::string> attacked_policies() {
  std::vector<std::string> list{"lb-bsp:device=gpu,window=2", "lb-bsp:predictor=ar", "lb-bsp:predictor=ewma"};
  for (const PolicyHelp& help : policy_help()) {
    list.push_back(help.name);
  }
  return list;
}

TEST(HostileStateTest, IsRefusedOrDoesNoHarm) {
  for (const std::string& policy : attacked_policies()) {
    for (const int steps : {0, 3, 40}) {
      const State learned = learned_state(policy, steps);
      go_on_from(policy, learned);
      for (std::uint64_t round = 0; round < 300; ++round) {
        Random random({round});
        std::vector<std::uint8_t> bytes(1 + random.below(40));
        for (std::uint8_t& byte : bytes) {
          byte = static_cast<std::uint8_t>(random.next());
        }
        State state = learned;
        for (ByteStream stream(bytes); !stream.empty();) {
          damage(state, stream);
        }
        go_on_from(policy, state);
      }
    }
  }
}

/// Whether a controller of the policy refuses its own state after `change`.
template <class Change>
bool refuses(const std::string& policy, const Change& change) {
  State state = learned_state(policy, 40);
  change(state);
  Controller controller = fuzz_controller(policy);
  try {
    controller.restore(state);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

TEST(HostileStateTest, SizesThatDoNotFitOneAnotherAreRefused) {
  EXPECT_TRUE(refuses("isochron", [](State& state) { state.numbers.at("learned.workers.count") = {0x1p53}; }));
  EXPECT_TRUE(refuses("lbb", [](State& state) { state.numbers.at("learned.probes_left") = {-4.0}; }));
  EXPECT_TRUE(refuses("lbb", [](State& state) { state.numbers.at("learned.probes_left") = {0x1p40}; }));
  EXPECT_TRUE(refuses("lbb", [](State& state) { state.numbers.at("learned.profiles.0.batches")[0] = kUnknown; }));
  // A network that has learned, without the readings that it takes its inputs from.
  EXPECT_TRUE(refuses("lb-bsp:predictor=narx", [](State& state) {
    state.numbers.at("learned.0.predictor.speed.past.values").resize(1);
  }));
  EXPECT_TRUE(refuses(
      "lb-bsp:predictor=narx", [](State& state) { state.numbers.at("learned.0.predictor.cpu.past.values").clear(); }));
  EXPECT_TRUE(
      refuses("lb-bsp:predictor=narx", [](State& state) { state.numbers.at("learned.0.predictor.learned") = {-1.0}; }));
}

}  // namespace
}  // namespace isochron
