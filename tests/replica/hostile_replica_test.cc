// Checkpoints come from outside: a replica's state whose numbers were made up is refused, or does no harm.
#include <cstdint>
#include <exception>
#include <vector>

#include "tests/fuzz/hostile_state.h"
#include "tests/replica/job.h"
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"
#include "isochron/core/replica/replica.h"

namespace isochron {
namespace {

State learned_state_of_replica() {
  TestJob job({.global_batch = 12, .policy = "isochron"}, {{}, {.max_batch = 6}, {}}, 60);
  const std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true}, {}});
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    (void)job[rank].redo(reports, 1.0);
  }
  for (int step = 0; step < 4; ++step) {
    (void)job.step();
  }
  return job[0].state();
}

/// Goes on as far as it can; false if something was refused.
bool go_on_from(const State& state, std::size_t workers) {
  TestJob job({.global_batch = 12, .policy = "isochron"}, std::vector<Worker>(workers), 60);
  try {
    for (std::size_t rank = 0; rank < workers; ++rank) {
      job[rank].restore(state);
    }
    for (int step = 0; step < 6; ++step) {
      (void)job.step();
    }
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

TEST(HostileReplicaTest, AStateThatWasMadeUpIsRefusedOrDoesNoHarm) {
  const State learned = learned_state_of_replica();
  ASSERT_TRUE(go_on_from(learned, 3));
  int refused = 0;
  for (std::uint64_t round = 0; round < 2000; ++round) {
    Random random({round});
    std::vector<std::uint8_t> bytes(1 + random.below(40));
    for (std::uint8_t& byte : bytes) {
      byte = static_cast<std::uint8_t>(random.next());
    }
    State state = learned;
    for (ByteStream stream(bytes); !stream.empty();) {
      damage(state, stream);
    }
    refused += go_on_from(state, 1 + random.below(4)) ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

TEST(HostileReplicaTest, AStateWithoutAFieldIsRefused) {
  const State learned = learned_state_of_replica();
  for (const auto& [name, values] : learned.numbers) {
    State state = learned;
    state.numbers.erase(name);
    EXPECT_FALSE(go_on_from(state, 3)) << name;
  }
  for (const auto& [name, value] : learned.words) {
    State state = learned;
    state.words.erase(name);
    EXPECT_FALSE(go_on_from(state, 3)) << name;
  }
}

}  // namespace
}  // namespace isochron
