#include "isochron/server/parameter_client.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::server {

ParameterClient::ParameterClient(Link& link, ParameterLayout layout, int first_server, std::vector<Space> values)
    : link_(&link),
      layout_(std::move(layout)),
      first_server_(first_server),
      values_(std::move(values)),
      headers_(layout_.chunks.size()),
      gradients_(layout_.chunks.size()),
      answers_(layout_.chunks.size()) {
}

Space part_of(const ParameterLayout& layout, const std::vector<Space>& strips, std::size_t chunk) {
  const Chunk& at = layout.chunks[chunk];
  const std::int64_t width = layout.strips[at.strip].width;
  return strips[at.strip].subspan(
      static_cast<std::size_t>(at.first * width), static_cast<std::size_t>(at.size() * width));
}

Space ParameterClient::values_of(std::size_t chunk) const {
  return part_of(layout_, values_, chunk);
}

void ParameterClient::start_pull(PullHeader pull) {
  for (std::size_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    pulling_.push_back(link_->receive(server_of(chunk), kFirstValuesTag + static_cast<int>(chunk), values_of(chunk)));
    pull.chunk = static_cast<std::int64_t>(chunk);
    link_->tell(server_of(chunk), kPullTag, encode(pull));
  }
}

void ParameterClient::finish_pull() {
  link_->wait(pulling_, "pulling parameters");
}

void ParameterClient::begin_push(const PushHeader& push, const std::vector<StripRate>& strips) {
  ISO_CHECK(!pushing_, "a push begins before the last one has ended");
  PushHeader header = push;
  for (std::size_t chunk = 0; chunk < headers_.size(); ++chunk) {
    header.chunk = static_cast<std::int64_t>(chunk);
    if (!push.skipped) {
      const StripRate& strip = strips[layout_.chunks[chunk].strip];
      header.rate = push.rate * strip.rate;
      header.settings = strip.settings;
    }
    headers_[chunk] = encode(header);
  }
  gradients_.assign(layout_.chunks.size(), {});
  skipped_ = push.skipped;
  pushing_ = true;
  for (std::size_t chunk = 0; skipped_ && chunk < headers_.size(); ++chunk) {
    send_now(chunk);
  }
}

void ParameterClient::send(std::size_t chunk, Bytes gradient) {
  gradients_[chunk] = gradient;
  send_now(chunk);
}

void ParameterClient::send_now(std::size_t chunk) {
  const int server = server_of(chunk);
  transfers_.push_back(link_->receive(server, kAnswerTag, answers_[chunk]));
  link_->tell(server, kPushTag, headers_[chunk]);
  if (!skipped_) {
    transfers_.push_back(link_->send(server, kGradientTag, gradients_[chunk]));
  }
}

ParameterClient::Pushed ParameterClient::finish_push() {
  ISO_CHECK(pushing_, "a push ends that has not begun");
  link_->wait(transfers_, "pushing a gradient");
  Pushed pushed;
  for (const Answer& bytes : answers_) {
    const auto answer = decode<PushAnswer>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    pushed.staleness = std::max(pushed.staleness, answer.staleness);
    sent_ += answer.staleness >= 0 && !skipped_ ? 1 : 0;
  }
  forget_push();
  return pushed;
}

void ParameterClient::abandon() {
  link_->drain(pulling_);
  link_->drain(transfers_);
}

void ParameterClient::forget_push() {
  gradients_.assign(layout_.chunks.size(), {});
  pushing_ = false;
}

void ParameterClient::move_to(Link& link, int first_server, const std::vector<int>& server_of) {
  link_ = &link;
  first_server_ = first_server;
  for (std::size_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    layout_.chunks[chunk].server = server_of[chunk];
  }
  for (std::size_t chunk = 0; pushing_ && chunk < layout_.chunks.size(); ++chunk) {
    if (skipped_ || !gradients_[chunk].empty()) {
      send_now(chunk);
    }
  }
}

}  // namespace isochron::server
