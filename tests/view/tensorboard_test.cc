// Reads the event file back as TensorBoard does: frames, checksums and messages.
#include "isochron/view/tensorboard.h"

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/view/records.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::view {
namespace {

using testing::ElementsAre;
using testing::Pair;

template <class Number>
Number take(std::string_view& bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t turned = masked - 0xA282EAD8U;
  return turned >> 17U | turned << 15U;
}

/// The data of every record, whose checksums must be right.
std::vector<std::string> read_records(const std::string& file) {
  std::vector<std::string> records;
  std::string_view rest = file;
  while (rest.size() >= 16) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<std::uint64_t>(rest);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), crc32c(length_bytes));
    records.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), crc32c(records.back()));
  }
  EXPECT_TRUE(rest.empty());
  return records;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(take<char>(bytes));
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80U) {
      return value;
    }
  }
}

/// Field number -> the bytes of its values, numbers as they are written.
std::multimap<std::uint64_t, std::string> read_message(std::string_view bytes) {
  std::multimap<std::uint64_t, std::string> fields;
  while (!bytes.empty()) {
    const std::uint64_t tag = take_varint(bytes);
    std::size_t length = 0;
    switch (tag & 7U) {
      case 0: {
        const std::uint64_t value = take_varint(bytes);
        fields.emplace(tag >> 3U, std::to_string(value));
        continue;
      }
      case 1:
        length = 8;
        break;
      case 2:
        length = take_varint(bytes);
        break;
      case 5:
        length = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (tag & 7U);
        return fields;
    }
    fields.emplace(tag >> 3U, std::string(bytes.substr(0, length)));
    bytes.remove_prefix(length);
  }
  return fields;
}

template <class Number>
Number number(const std::string& bytes) {
  std::string_view view = bytes;
  return take<Number>(view);
}

/// Tag -> value of one event's summary.
std::map<std::string, float> scalars(const std::multimap<std::uint64_t, std::string>& event) {
  std::map<std::string, float> values;
  const auto summary = read_message(event.find(5)->second);
  for (auto [value, end] = summary.equal_range(1); value != end; ++value) {
    const auto fields = read_message(value->second);
    values[fields.find(1)->second] = number<float>(fields.find(2)->second);
  }
  return values;
}

TEST(TensorboardTest, ComputesCastagnolisChecksum) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
}

TEST(TensorboardTest, WritesScalarsThatReadBack) {
  RunView view = view_of(2);
  view.add(EvaluationRecord{.step = 2, .seconds = 2.5, .loss = 0.25, .accuracy = 0.75});
  std::ostringstream stream;
  write_event_file(stream, view);
  const std::vector<std::string> records = read_records(stream.str());
  ASSERT_EQ(records.size(), 4U);  // the version, two steps, an evaluation
  EXPECT_EQ(read_message(records[0]).find(3)->second, "brain.Event:2");

  const auto step = read_message(records[2]);
  EXPECT_EQ(number<double>(step.find(1)->second), 2.0);
  EXPECT_EQ(step.find(2)->second, "1");
  EXPECT_THAT(
      scalars(step),
      ElementsAre(
          Pair("batch_size/fast", 60.0F),
          Pair("batch_size/slow", 40.0F),
          Pair("compute_seconds/fast", 0.5F),
          Pair("compute_seconds/slow", 1.0F),
          Pair("step/balance", 0.75F),
          Pair("step/samples_per_second", 100.0F),
          Pair("step/seconds", 1.0F),
          Pair("step/utilization", 0.625F),
          Pair("wait_seconds/fast", 0.5F),
          Pair("wait_seconds/slow", 0.0F)));
  EXPECT_THAT(scalars(read_message(records[3])), ElementsAre(Pair("accuracy/test", 0.75F), Pair("loss/test", 0.25F)));
}

}  // namespace
}  // namespace isochron::view
