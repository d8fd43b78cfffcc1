// A worker's side of the parameter server: its gradients go out chunk by chunk while backward still computes the rest,
// values come back straight into the model.
//
// Parameters on the CPU become views of the strips that values are received into; those on other devices are copied. An
// iteration is: start_pull(), whatever does not need parameters, finish_pull(), forward, begin_push(), backward,
// finish_push(). Not thread-safe, except that backward may call from a thread of autograd's.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include "isochron/core/dispatch/messages.h"
#include "isochron/server/channel.h"
#include "isochron/server/layout.h"

namespace isochron::server {

class ParameterClient {
 public:
  // `servers`: the rank of every server. `channel` must outlive this. Hooks the parameters.
  ParameterClient(Channel& channel, Layout layout, std::vector<Peer> servers);
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;
  // Takes the hooks away; what is in flight must have ended.
  ~ParameterClient();

  // Asks for all values, of every chunk; `pull` says for whom. They are in the model after finish_pull().
  void start_pull(PullHeader pull);
  void finish_pull();

  // The gradients of the coming backward pass are an update: `push` says which, `rates` has the learning rate of every
  // group. A gradient that is not finite counts as 0 if `only_finite`.
  void begin_push(const PushHeader& push, const std::vector<double>& rates, bool only_finite);
  // After backward: what had no gradient is sent as 0; returns when the servers have applied everything.
  struct Pushed {
    std::int64_t staleness = 0;  // the largest of all chunks
    bool finite = true;
  };
  Pushed finish_push();

  // After a failure of the channel: brings what is in flight to its end.
  void abandon();
  // And leaves out an update that is on its way: it will not be sent again.
  void forget_push();
  // Goes on over another channel with other servers, `server_of` by chunk. An update under way is sent again; servers
  // leave out the chunks of it that they have.
  void move_to(Channel& channel, const std::vector<int>& server_of, std::vector<Peer> servers);

  // Chunks of gradients that were sent, those that servers left out not counted.
  std::int64_t sent() const { return sent_; }
  void forget_sent() { sent_ = 0; }
  const Layout& layout() const { return layout_; }
  // The values as they were last received, by strip.
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  class Hook;

  void adopt_parameters();
  void take_gradient(std::size_t slot);
  void take(std::size_t slot_number, const at::Tensor& gradient);
  at::Tensor usable(const at::Tensor& gradient, at::ScalarType type);
  void count_in(std::size_t slot);
  void send(std::size_t chunk);
  const Peer& server_of(std::size_t chunk) const {
    return servers_[static_cast<std::size_t>(layout_.chunks[chunk].server)];
  }

  Channel* channel_;
  Layout layout_;
  std::vector<Peer> servers_;
  std::vector<at::Tensor> values_;                   // by strip
  std::vector<at::Tensor> gradients_;                // likewise
  std::vector<std::vector<std::size_t>> chunks_of_;  // by slot

  std::vector<std::string> pulls_;  // by chunk: what is being sent
  std::vector<MPI_Request> pulling_;
  std::vector<Peer> pulling_from_;  // by request

  bool pushing_ = false;
  bool only_finite_ = false;
  bool finite_ = true;
  std::vector<std::string> pushes_;  // by chunk: its header, as it is sent
  std::vector<at::Tensor> leaving_;  // by chunk: its gradient, from when it is there until the servers have it
  std::vector<std::array<char, kPushAnswerBytes>> answers_;  // in the order of sending
  std::vector<std::size_t> missing_;                         // by chunk: slots whose gradient is not there yet
  std::vector<bool> has_gradient_;                           // by slot
  std::size_t sent_now_ = 0;
  std::exception_ptr failure_;
  std::vector<MPI_Request> requests_;
  std::vector<Peer> pushing_to_;  // by request
  std::int64_t sent_ = 0;
};

}  // namespace isochron::server
