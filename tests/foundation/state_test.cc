#include "isochron/core/state.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

namespace isochron {
namespace {

struct Inner {
  double level = 0.0;
  void exchange(StateExchange& state) { state.field("level", level); }
};

struct Outer {
  std::int64_t count = 0;
  bool pending = false;
  std::string kind;
  std::vector<double> values;
  std::vector<Inner> inner;
  void exchange(StateExchange& state) {
    state.field("count", count);
    state.field("pending", pending);
    state.field("kind", kind);
    state.field("values", values);
    state.parts("inner", inner);
  }
};

TEST(StateTest, RestoresEveryFieldBitByBitThroughText) {
  Outer original{
      .count = -7,
      .pending = true,
      .kind = "two\nlines \\ and a space",
      .values = {0.1, -0.0, 5e-324, std::numeric_limits<double>::infinity()},
      .inner = {{1.5}, {2.5}}};
  const State state = save_state(original);
  Outer copy;
  restore_state(copy, State::parse(state.serialize()));
  EXPECT_EQ(save_state(copy), state);
  EXPECT_EQ(copy.kind, original.kind);
  EXPECT_TRUE(std::signbit(copy.values[1]));
  EXPECT_EQ(copy.inner.size(), 2U);
}

TEST(StateTest, CutsOutAPartAndPutsAnotherInItsPlace) {
  const State state = State::parse("n a.x 1p+0\nn ab 1p+1\nw a.y.z two\n");
  const State part = state.part("a");
  EXPECT_EQ(part, State::parse("n x 1p+0\nw y.z two\n"));
  State other = state;
  other.put("a", State::parse("n z 1p+0\n"));
  EXPECT_EQ(other, State::parse("n a.z 1p+0\nn ab 1p+1\n"));
  other.put("a", part);
  EXPECT_EQ(other, state);
}

TEST(StateTest, KeepsNotANumber) {
  State state;
  state.numbers["x"] = {std::nan("")};
  EXPECT_TRUE(std::isnan(State::parse(state.serialize()).numbers.at("x").front()));
}

TEST(StateTest, RefusesWhatItDidNotWrite) {
  EXPECT_THROW((void)State::parse("n x 0x1p0"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("n x one\n"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("q x 1\n"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("n x 0x1p0\nn x 0x1p0\n"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("w x a\nw x b\n"), std::invalid_argument);
}

/// What restoring `outer` from `state` is refused with.
std::string refusal(Outer& outer, const State& state) {
  try {
    restore_state(outer, state);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was refused";
}

// A count of 2^53 would take all memory before the first missing part is noticed.
TEST(StateTest, RefusesMorePartsThanThereAreBeforeMemoryIsTaken) {
  Outer outer{.inner = {{1.5}}};
  State state = save_state(outer);
  state.numbers["inner.count"] = {0x1p53};
  EXPECT_EQ(refusal(outer, state), "state field inner.count is 9007199254740992; permitted: as many as there are");
  state.numbers["inner.count"] = {2.0};
  EXPECT_EQ(
      refusal(outer, state), "state field inner.1.level is missing; permitted: a state that this version has saved");
}

struct Narrow {
  std::int8_t small = 0;
  void exchange(StateExchange& state) { state.field("small", small); }
};

TEST(StateTest, RefusesWholeNumbersThatDoNotFit) {
  Narrow narrow;
  State state = save_state(narrow);
  for (const double number : {128.0, -129.0, 0.5, 0x1p54}) {
    state.numbers["small"] = {number};
    EXPECT_THROW(restore_state(narrow, state), std::invalid_argument) << number;
  }
  state.numbers["small"] = {-128.0};
  restore_state(narrow, state);
  EXPECT_EQ(narrow.small, -128);
}

TEST(StateTest, NamesAMissingField) {
  Outer outer;
  try {
    restore_state(outer, State{});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "state field count is missing; permitted: a state that this version has saved");
  }
}

}  // namespace
}  // namespace isochron
