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

TEST(StateTest, KeepsNotANumber) {
  State state;
  state.numbers["x"] = {std::nan("")};
  EXPECT_TRUE(std::isnan(State::parse(state.serialize()).numbers.at("x").front()));
}

TEST(StateTest, RefusesWhatItDidNotWrite) {
  EXPECT_THROW((void)State::parse("n x 0x1p0"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("n x one\n"), std::invalid_argument);
  EXPECT_THROW((void)State::parse("q x 1\n"), std::invalid_argument);
}

TEST(StateTest, NamesAMissingField) {
  Outer outer;
  try {
    restore_state(outer, State{});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "state field count is missing");
  }
}

}  // namespace
}  // namespace isochron
