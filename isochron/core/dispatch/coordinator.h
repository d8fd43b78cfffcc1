// The coordinator of an asynchronous job: workers tell it that they are free, and it says what to do next. It moves
// reports in and assignments out of the dispatcher, which decides, and numbers the updates: its records are the run
// log.
//
// What became known goes to every worker with its next assignment, so that all know all, one iteration late at most; in
// rounds (s = 0) when a round is over, since it counts as a whole or not at all. A report that comes twice counts once
// and gets the same answer again; one that comes later than its successor is ignored. So whoever has no answer may ask
// again. The caller moves the messages and keeps the time. O(K) per call. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/dispatch/dispatcher.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

class Coordinator {
 public:
  struct Reply {
    int rank = 0;
    Assignment assignment;
  };

  /// `workers`: who is at which rank; none: a server that does not train, and comes to barriers only. Reports that come
  /// before open() wait for it.
  Coordinator(Dispatcher dispatcher, const std::vector<std::optional<WorkerId>>& workers);

  /// Up to position `end` of the epoch the samples may be used; `next_record` is the number of the next update. The
  /// answers to reports that have waited.
  std::vector<Reply> open(std::int64_t epoch, std::int64_t end, std::int64_t next_record);
  /// Whom to answer, and what. `rank` is that of a member (InvariantError).
  std::vector<Reply> hear(int rank, const IterationReport& report);
  /// The rank has closed the job, which is in order as long as nobody waits for it.
  void leave(int rank);

  /// Ranks that others wait for: all who are not here while somebody is. Empty: nobody waits.
  [[nodiscard]] std::vector<int> late() const;
  /// Those of them that have left.
  [[nodiscard]] std::vector<int> missing() const;
  /// Why the job is to end; empty: it is not.
  [[nodiscard]] const std::string& non_finite() const { return non_finite_; }
  /// Since the last open(), those of a round that is not over left out.
  [[nodiscard]] const std::vector<UpdateRecord>& records() const { return records_; }
  Dispatcher& dispatcher() { return dispatcher_; }

 private:
  struct Member {
    std::optional<WorkerId> worker;
    std::int64_t heard = -1;           // number of the last report
    std::optional<Assignment> answer;  // to it, if there is one
    bool here = false;                 // free, and waiting for an assignment or the barrier
    bool left = false;
    std::size_t told = 0;  // so many records
  };

  void take(int rank, const IterationReport& report);
  void take_finished(WorkerId worker, const IterationReport& report);
  std::vector<Reply> answers();
  Reply answer(int rank, Assignment assignment);
  std::vector<Reply> barrier();
  int rank_of(WorkerId worker) const;

  Dispatcher dispatcher_;
  std::vector<Member> members_;  // by rank
  bool open_ = false;
  std::vector<std::pair<int, IterationReport>> early_;
  std::int64_t epoch_ = -1;
  std::int64_t next_record_ = 0;
  std::vector<UpdateRecord> records_;
  std::vector<UpdateRecord> unsettled_;  // follow if the round is finished
  std::int64_t noted_decision_ = -1;     // whose change a record has told
  bool stopping_ = false;
  std::int64_t stop_signal_ = 0;
  std::string non_finite_;
};

}  // namespace isochron
