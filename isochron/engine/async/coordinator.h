// The desk at which the workers of an asynchronous job ask what to do next. It lies in the thread of one server, moves
// the words in and out of the dispatcher, which decides, and numbers the updates: its records are the run log.
//
// What became known goes to every worker with its next order, so that all know all, one iteration late at most; in
// rounds (s = 0) when a round is over, since it counts as a whole or not at all. hear() and check_patience() belong to
// the server's thread; everything else is for the main thread while the server pauses.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isochron/comm/error.h"
#include "isochron/core/dispatch/dispatcher.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/engine/async/words.h"
#include "isochron/server/parameter_server.h"

namespace isochron {

// Who sits at which rank.
struct Seat {
  Peer peer;
  std::optional<WorkerId> worker;  // none: a dedicated server
};

class Coordinator final : public server::Desk {
 public:
  Coordinator(Dispatcher dispatcher, std::vector<Seat> seats, std::chrono::milliseconds timeout);

  // Up to position `end` of the epoch the samples may be used; `next_record` is the number of the next update.
  void open(std::int64_t epoch, std::int64_t end, std::int64_t next_record);
  Dispatcher& dispatcher() { return dispatcher_; }
  // Lines of records since the last open(), those of a round that is not over left out.
  const std::vector<std::string>& news() const { return news_; }

  std::vector<Reply> hear(int rank, const std::string& words) override;
  void check_patience() override;

 private:
  using Clock = std::chrono::steady_clock;

  void take_report(WorkerId worker, const FreeWords& words);
  std::vector<Reply> answers();
  Reply order(const WorkOrder& order);
  std::vector<Reply> meeting();
  NextWords words_for(int rank);
  int rank_of(WorkerId worker) const;

  Dispatcher dispatcher_;
  const std::vector<Seat> seats_;  // by rank
  const std::chrono::milliseconds timeout_;
  std::int64_t epoch_ = -1;
  std::int64_t next_record_ = 0;
  std::vector<std::string> news_;       // lines, since the last meeting
  std::vector<std::string> unsettled_;  // lines that follow if the round is finished
  std::vector<std::size_t> told_;       // by rank: how many of them
  std::vector<bool> attending_;         // by rank: free, and waiting for an order or the meeting
  std::int64_t noted_decision_ = -1;    // whose change a record has told
  bool stopping_ = false;
  std::int64_t stop_signal_ = 0;
  std::string numbers_;
  Clock::time_point heard_ = Clock::now();
};

}  // namespace isochron
