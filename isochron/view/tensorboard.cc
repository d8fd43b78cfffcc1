#include "isochron/view/tensorboard.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace isochron::view {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder & 1U) != 0 ? remainder >> 1U ^ 0x82F63B78U : remainder >> 1U;
    }
    table[byte] = remainder;
  }
  return table;
}

/// TFRecord's way to make the checksum of data that holds checksums itself a different one.
std::uint32_t masked(std::uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

template <class Bits>
std::string little_endian(Bits bits) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Bits); ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(bits >> (8U * i)));
  }
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) {
    bytes += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
  }
  return bytes + static_cast<char>(static_cast<unsigned char>(value));
}

/// The fields of a Protocol Buffers message; the low three bits of a tag say how the value is written.
std::string double_field(unsigned number, double value) {
  return varint(number << 3U | 1U) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(unsigned number, float value) {
  return varint(number << 3U | 5U) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string integer_field(unsigned number, std::int64_t value) {
  return varint(number << 3U) + varint(static_cast<std::uint64_t>(value));
}
std::string bytes_field(unsigned number, std::string_view bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + std::string(bytes);
}

/// An Event with all scalars of a moment: wall_time = 1, step = 2, summary = 5 {value = 1 {tag = 1, simple_value = 2}}.
class Event {
 public:
  Event(double seconds, std::int64_t step) : head_(double_field(1, seconds) + integer_field(2, step)) {}

  void scalar(std::string_view tag, double value) {
    if (std::isfinite(value)) {
      values_ += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
    }
  }
  [[nodiscard]] std::string message() const { return head_ + bytes_field(5, values_); }

 private:
  std::string head_;
  std::string values_;
};

void write_record(std::ostream& stream, const std::string& data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  stream << length << little_endian(masked(crc32c(length))) << data << little_endian(masked(crc32c(data)));
}

void write_bin(std::ostream& stream, const Bin& bin, const RunView& view) {
  Event event(bin.end, bin.last_step);
  event.scalar("step/seconds", bin.seconds.mean());
  event.scalar("step/samples_per_second", bin.samples / bin.busy);
  event.scalar("step/balance", bin.balance.mean());
  event.scalar("step/utilization", bin.utilization.mean());
  event.scalar("loss/train", bin.loss.mean());
  for (std::size_t i = 0; i < bin.cells.size(); ++i) {
    const std::string& name = view.workers()[i].name;
    event.scalar("batch_size/" + name, bin.cells[i].batch.mean());
    event.scalar("compute_seconds/" + name, bin.cells[i].compute.mean());
    event.scalar("wait_seconds/" + name, bin.cells[i].wait.mean());
  }
  write_record(stream, event.message());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ crc >> 8U;
  }
  return ~crc;
}

void write_event_file(std::ostream& stream, const RunView& view) {
  write_record(stream, double_field(1, 0.0) + bytes_field(3, "brain.Event:2"));  // file_version = 3
  for (const Bin* const bin : view.timeline().bins()) {
    write_bin(stream, *bin, view);
  }
  for (const EvaluationRecord& evaluation : view.evaluations().kept()) {
    Event event(evaluation.seconds, evaluation.step);
    event.scalar("loss/test", evaluation.loss);
    event.scalar("accuracy/test", evaluation.accuracy);
    write_record(stream, event.message());
  }
}

}  // namespace isochron::view
