// Any text is a state that survives a round trip, or std::invalid_argument that names the line. Any numbers in the
// state of a controller or a ledger are refused, or do no harm.
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hostile_state.h"

#include "isochron/core/error.h"
#include "isochron/core/policy/registry.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/state.h"

namespace {

using isochron::State;

void check_text(std::string_view text) {
  State state;
  try {
    state = State::parse(text);
  } catch (const std::invalid_argument& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("state, line "), "a refusal without its line");
    return;
  }
  const std::string again = state.serialize();
  ISO_CHECK(State::parse(again).serialize() == again, "the round trip changed the state");
  isochron::Ledger ledger(0);
  try {
    isochron::restore_state(ledger, state);
  } catch (const std::invalid_argument&) {
    return;
  }
  ISO_CHECK(ledger.used() >= 0 && ledger.used() <= ledger.size(), "more samples than there are");
}

struct Learned {
  std::string policy;
  State state;
};

/// The states of every policy, early and late.
const std::vector<Learned>& learned() {
  static const std::vector<Learned> all = [] {
    std::vector<Learned> list;
    std::vector<std::string> policies{"lb-bsp:device=gpu,window=2", "lb-bsp:predictor=ar", "lb-bsp:predictor=ewma"};
    for (const isochron::PolicyHelp& help : isochron::policy_help()) {
      policies.push_back(help.name);
    }
    for (const std::string& policy : policies) {
      for (const int steps : {0, 3, 40}) {
        list.push_back({.policy = policy, .state = isochron::learned_state(policy, steps)});
      }
    }
    return list;
  }();
  return all;
}

void check_controller(std::span<const std::uint8_t> data) {
  isochron::ByteStream bytes(data);
  const Learned& chosen = learned()[bytes.byte() % learned().size()];
  State state = chosen.state;
  while (!bytes.empty()) {
    isochron::damage(state, bytes);
  }
  isochron::go_on_from(chosen.policy, state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// The first byte says what the others are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  if (data[0] == 't') {
    check_text({reinterpret_cast<const char*>(data + 1), size - 1});
  } else {
    check_controller({data + 1, size - 1});
  }
  return 0;
}
