// A worker's side of the parameter servers: asks for the values of all chunks, and sends gradients chunk by chunk. An
// iteration is: start_pull(), whatever does not need parameters, finish_pull(), begin_push(), send() for every chunk in
// any order, finish_push(). Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/dispatch/layout.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/server/link.h"

namespace isochron::server {

class ParameterClient {
 public:
  // Settings of a push that differ from strip to strip.
  struct StripRate {
    double rate = 1.0;     // times that of the push
    std::string settings;  // of the framework's optimizer
  };
  struct Pushed {
    std::int64_t staleness = 0;  // the largest of all chunks
  };

  // Server n is rank `first_server` + n. `values`, by strip, are where values are received.
  ParameterClient(Link& link, ParameterLayout layout, int first_server, std::vector<Space> values);

  // `pull` says for whom. All values have come after finish_pull().
  void start_pull(PullHeader pull);
  void finish_pull();

  // `push` says which update it is. If it is skipped, nothing is to be sent.
  void begin_push(const PushHeader& push, const std::vector<StripRate>& strips);
  // The gradient stays as it is until finish_push().
  void send(std::size_t chunk, Bytes gradient);
  // The same after a failure of the link: move_to() sends it.
  void keep(std::size_t chunk, Bytes gradient) { gradients_[chunk] = gradient; }
  // When the servers have applied everything; all chunks must have been sent.
  Pushed finish_push();
  [[nodiscard]] bool pushing() const { return pushing_; }

  // After a failure of the link: brings what is in flight to its end.
  void abandon();
  // And leaves out an update that is on its way: it will not be sent again.
  void forget_push();
  // Goes on over another link with other servers, `server_of` by chunk. What was sent of an update under way is sent
  // again; servers leave out the chunks of it that they have.
  void move_to(Link& link, int first_server, const std::vector<int>& server_of);

  // Chunks of gradients that were sent, those that servers left out not counted.
  [[nodiscard]] std::int64_t sent() const { return sent_; }
  void forget_sent() { sent_ = 0; }
  [[nodiscard]] const ParameterLayout& layout() const { return layout_; }
  // As they were last received.
  [[nodiscard]] Space values_of(std::size_t chunk) const;

 private:
  using Answer = std::array<std::byte, kPushAnswerBytes>;

  [[nodiscard]] int server_of(std::size_t chunk) const { return first_server_ + layout_.chunks[chunk].server; }
  void send_now(std::size_t chunk);

  Link* link_;
  ParameterLayout layout_;
  int first_server_;
  std::vector<Space> values_;
  Transfers pulling_;

  bool pushing_ = false;
  bool skipped_ = false;
  std::vector<std::string> headers_;  // by chunk
  std::vector<Bytes> gradients_;      // by chunk, from when it is sent until the servers have it
  std::vector<Answer> answers_;       // by chunk
  Transfers transfers_;
  std::int64_t sent_ = 0;
};

// The part of strips that belongs to a chunk.
Space part_of(const ParameterLayout& layout, const std::vector<Space>& strips, std::size_t chunk);

}  // namespace isochron::server
