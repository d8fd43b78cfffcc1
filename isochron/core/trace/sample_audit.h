// Proves from the records of a run that every sample of every finished epoch was used exactly once, or says where not.
//
// Feed it the header and then the records in their order; finish() tells the outcome. A step counts unless a later
// "rollback" or "resume" takes it back; the ledger (core/sample/ledger.h) accounts for those that do. An epoch ends
// with its samples or, in a stream or a loop that wants no more of them, where an "epoch-end" says so. Whatever the
// numbers, nothing overflows and no memory is taken that the records do not fill themselves. It remembers every step,
// since any may be taken back: O(workers) memory per step, O(workers log n) time for n intervals. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/sample/interval.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

struct AuditFinding {
  std::int64_t line = 0;  // of the log
  std::string words;
};

/// Positions of an epoch that a step used though they had been used before.
struct DoubleUse {
  std::int64_t line = 0;
  std::int64_t step = 0;
  WorkerId worker = 0;
  Interval positions;
};

/// Positions of an epoch that no step used.
struct MissingUse {
  std::int64_t after_step = -1;  // the step whose positions end where these begin; -1: none
  Interval positions;
};

struct EpochAudit {
  std::int64_t epoch = 0;
  bool finished = false;         // its last sample was used, its end was said, or a later epoch was begun
  bool cut_short = false;        // it was ended before its last sample
  std::int64_t used = 0;         // samples, each counted once
  std::int64_t doubled = 0;      // uses beyond the first of a sample
  std::int64_t missing = 0;      // of a finished epoch: samples not used; else those before the last one used
  std::vector<DoubleUse> twice;  // where; the first kMostPlaces
  std::vector<MissingUse> gaps;  // likewise

  [[nodiscard]] bool exact() const { return doubled == 0 && missing == 0; }
};

struct SampleAudit {
  static constexpr std::size_t kMostPlaces = 20;

  RunHeader header;
  std::int64_t steps = 0;                      // that count
  std::int64_t taken_back = 0;                 // by rollbacks and resumes
  std::map<std::string, std::int64_t> events;  // how many of each known name, and "other"
  std::vector<EpochAudit> epochs;              // those with steps, in order
  std::vector<AuditFinding> findings;          // what else is wrong; the first kMostPlaces
  std::int64_t finding_count = 0;

  /// Every finished epoch was used exactly once, and what there is of the last one no more than once.
  [[nodiscard]] bool proven() const;
  [[nodiscard]] std::int64_t finished_epochs() const;
  [[nodiscard]] std::int64_t epochs_cut_short() const;
  /// Adds something that is wrong with the log.
  void complain(std::int64_t line, std::string words);
};

class SampleAuditor {
 public:
  explicit SampleAuditor(const RunHeader& header);

  /// `line` is where the record stands in the log.
  void add(const StepRecord& record, std::int64_t line);
  void add(const UpdateRecord& record, std::int64_t line);
  void add(const EventRecord& record, std::int64_t line);

  /// All further calls are too late.
  [[nodiscard]] SampleAudit finish();

 private:
  struct Share {
    WorkerId worker = 0;
    std::int64_t samples = 0;
  };
  struct Step {
    std::int64_t line = 0;
    std::int64_t number = 0;
    std::int64_t epoch = 0;
    Interval positions;
    std::vector<Share> shares;
    bool goes_on = false;  // the step before it, in the next epoch
  };

  [[nodiscard]] bool asynchronous() const;
  /// The number of positions that an epoch can have: those that the header says, or any number.
  [[nodiscard]] std::int64_t epoch_size() const;
  [[nodiscard]] bool size_is_known() const;
  /// For a step or an update.
  template <class Record>
  void add(const Record& record, std::span<const WorkerStep> workers, std::int64_t line);
  template <class Record>
  void keep(const Record& record, std::span<const WorkerStep> workers, std::int64_t line);
  template <class Record>
  void keep_beside(const Record& record, std::span<const WorkerStep> workers, std::int64_t line);
  void account(const Step& step);
  void find_absent_epochs();
  void close_epoch(EpochAudit& epoch, const Ledger& ledger, bool is_last);

  SampleAudit audit_;
  std::int64_t next_step_ = 0;
  std::vector<Step> steps_;  // in the order of the log
  std::map<std::int64_t, Ledger> ledgers_;
  std::map<std::int64_t, EpochAudit> epochs_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> ends_;  // epoch and end of its positions to the step
  // Epochs and positions where an event said that they end; those that later steps went beyond mean nothing.
  std::set<std::pair<std::int64_t, std::int64_t>> said_ends_;
};

}  // namespace isochron
