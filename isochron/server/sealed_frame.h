// A frame on its way out: head, seal of the head, body, seal of the body (none if the body is empty). Small frames go
// out in one piece. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "isochron/server/frame_seal.h"

namespace isochron::server {

// What a frame is, in front of it: little-endian.
struct FrameHead {
  static constexpr std::size_t kSize = 12;  // bytes

  std::uint32_t tag = 0;
  std::uint64_t length = 0;  // of the body

  [[nodiscard]] int number() const { return static_cast<int>(tag); }
};

class SealedFrame {
 public:
  SealedFrame(int tag, std::string message);
  // The bytes stay where they are until the frame is sent, or keep_body() was called.
  SealedFrame(int tag, std::span<const std::byte> body);

  [[nodiscard]] int tag() const { return tag_; }
  [[nodiscard]] std::span<const std::byte> body() const;
  [[nodiscard]] bool is_begun() const { return sent_ > 0; }
  [[nodiscard]] bool is_sent() const;
  // What is to be sent next. `seal` is that of the connection; frames are sealed in the order in which they are begun,
  // so that one which is dropped before that is not missed.
  [[nodiscard]] std::span<const std::byte> rest(FrameSeal& seal);
  // So many bytes of it have been sent.
  void advance(std::size_t count, FrameSeal& seal);
  // The body may go away from now on.
  void keep_body();

 private:
  [[nodiscard]] std::size_t body_end() const { return front_.size() + body_left(); }
  [[nodiscard]] std::size_t body_left() const { return joined_ ? 0 : body().size(); }

  int tag_;
  bool joined_ = false;  // all of it is in front_
  std::string message_;
  std::span<const std::byte> lent_;
  std::string front_;
  std::string back_;  // the seal of the body
  std::size_t sent_ = 0;
};

}  // namespace isochron::server
