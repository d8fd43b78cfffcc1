// What workers and servers say to one another. Numbers only; both sides run the same build (the job's handshake).
//
//   worker                                     server
//   Push, then the gradient of a piece   -->   applies it
//                                        <--   PushAnswer
//   Pull                                 -->
//                                        <--   the values of the piece
//   words for the desk                   -->   one server has a desk (parameter_server.h)
//                                        <--   words from the desk
//
// Requests come on a communicator of their own, where servers look for anything from anybody; all that is expected by
// its receiver (gradients, answers, values, words from the desk) goes over a second one.
#pragma once

#include <cstdint>

#include "isochron/core/worker.h"

namespace isochron::server {

// Tags of requests.
inline constexpr int kPushTag = 1;
inline constexpr int kPullTag = 2;
inline constexpr int kDeskTag = 3;
// Tags of what is expected.
inline constexpr int kGradientTag = 1;
inline constexpr int kAnswerTag = 2;
inline constexpr int kDeskReplyTag = 3;
inline constexpr int kFirstValuesTag = 16;  // plus the number of the piece

// Which samples an update stands for.
struct Provenance {
  WorkerId worker = 0;
  std::int64_t iteration = 0;  // of that worker; each is larger than the one before
  std::int64_t round = 0;      // in rounds: of all workers
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // positions of the epoch
  std::int64_t last = 0;
};

struct Push {
  std::int64_t piece = 0;
  Provenance from;
  std::int64_t round_samples = 0;  // in rounds: of all workers together; 0: applied as it comes
  double rate = 0.0;               // the learning rate of the piece's group, batch factor included
};

struct PushAnswer {
  std::int64_t piece = 0;
  std::int64_t staleness = 0;  // updates of others to this piece since the worker last pulled it; -1: it was left out
};

struct Pull {
  std::int64_t piece = 0;
  WorkerId worker = 0;
  std::int64_t rounds = 0;  // in rounds: so many are over, and are to be in the values
};

}  // namespace isochron::server
