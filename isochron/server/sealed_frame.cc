#include "isochron/server/sealed_frame.h"

#include <utility>

#include "isochron/core/dispatch/bytes.h"

namespace isochron::server {
namespace {

constexpr std::size_t kSmall = std::size_t{1} << 14;  // bytes of a body that are rather copied than sent by themselves

void append(std::string& text, std::span<const std::byte> bytes) {
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

SealedFrame::SealedFrame(int tag, std::string message) : tag_(tag), message_(std::move(message)) {
}

SealedFrame::SealedFrame(int tag, std::span<const std::byte> body) : tag_(tag), lent_(body) {
}

std::span<const std::byte> SealedFrame::body() const {
  return lent_.empty() ? std::as_bytes(std::span(message_)) : lent_;
}

bool SealedFrame::is_sent() const {
  return is_begun() && sent_ == body_end() + (body_left() > 0 ? FrameSeal::kSize : 0);
}

std::span<const std::byte> SealedFrame::rest(FrameSeal& seal) {
  if (front_.empty()) {
    ByteWriter writer;
    writer(static_cast<std::uint32_t>(tag_), std::uint64_t{body().size()});
    front_ = std::move(writer.bytes());
    append(front_, seal.of(std::as_bytes(std::span(front_))));
    joined_ = body().size() <= kSmall;
    if (joined_ && !body().empty()) {
      append(front_, body());
      append(front_, seal.of(body()));
    }
  }
  if (sent_ < front_.size()) {
    return std::as_bytes(std::span(front_)).subspan(sent_);
  }
  if (sent_ < body_end()) {
    return body().subspan(sent_ - front_.size());
  }
  return std::as_bytes(std::span(back_)).subspan(sent_ - body_end());
}

void SealedFrame::advance(std::size_t count, FrameSeal& seal) {
  if (sent_ >= front_.size() && sent_ < body_end()) {
    seal.update(body().subspan(sent_ - front_.size(), count));
    if (sent_ + count == body_end()) {
      append(back_, seal.finish());
    }
  }
  sent_ += count;
}

void SealedFrame::keep_body() {
  if (!joined_ && !lent_.empty()) {
    append(message_, lent_);
  }
  lent_ = {};
}

}  // namespace isochron::server
