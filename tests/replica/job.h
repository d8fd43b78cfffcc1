// The replicas of a job in one process, for tests of single rules; schedule.h has whole jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/replica/replica.h"

namespace isochron {

inline JobSettings uniform(std::int64_t global_batch) {
  return {.global_batch = global_batch, .policy = "uniform"};
}

/// All replicas of a job whose reports always arrive.
class TestJob {
 public:
  TestJob(const JobSettings& options, const std::vector<Worker>& workers, std::int64_t dataset_size = 0) {
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      replicas_.push_back(std::make_unique<Replica>(options, workers, static_cast<int>(rank)));
      if (dataset_size > 0) {
        replicas_.back()->open(dataset_size);
      }
    }
  }

  Replica& operator[](std::size_t rank) { return *replicas_[rank]; }
  [[nodiscard]] std::size_t size() const { return replicas_.size(); }

  /// Up to the moment when all have the reports.
  std::vector<StepReport> compute(const std::vector<StepReport>& measured = {}) {
    std::vector<StepReport> reports;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      (void)replicas_[rank]->plan();
      reports.push_back(replicas_[rank]->report(rank < measured.size() ? measured[rank] : StepReport{.seconds = 1.0}));
    }
    return reports;
  }
  StepOutcome complete(const std::vector<StepReport>& reports) {
    StepOutcome outcome;
    for (auto& replica : replicas_) {
      outcome = replica->complete(reports, 2.0, 3.0);
    }
    return outcome;
  }
  StepOutcome step(const std::vector<StepReport>& measured = {}) { return complete(compute(measured)); }

  /// The replicas that are left come together; the first of `ranks` is rank 0 now.
  std::vector<EventRecord> come_together(const std::vector<std::size_t>& ranks) {
    std::vector<std::unique_ptr<Replica>> left;
    std::vector<ProgressReport> reports;
    for (const std::size_t rank : ranks) {
      left.push_back(std::move(replicas_[rank]));
      reports.push_back(left.back()->progress(4.0));
    }
    replicas_ = std::move(left);
    const Settlement settlement = settle(reports);
    for (auto& replica : replicas_) {
      (void)replica->finish_unreported(settlement, 4.0);
    }
    for (const int rank : settlement.behind) {
      (*this)[static_cast<std::size_t>(rank)].take_over((*this)[static_cast<std::size_t>(settlement.leader)].state());
    }
    std::vector<EventRecord> events;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      events = replicas_[rank]->adopt(settlement, static_cast<int>(rank), 4.0);
    }
    return events;
  }
  void add(Replica newcomer) { replicas_.push_back(std::make_unique<Replica>(std::move(newcomer))); }

 private:
  std::vector<std::unique_ptr<Replica>> replicas_;
};

inline std::vector<std::string> names(const std::vector<EventRecord>& events) {
  std::vector<std::string> names;
  for (const EventRecord& event : events) {
    names.push_back(event.event + " " + std::to_string(event.worker) + " " + event.words);
  }
  return names;
}

}  // namespace isochron
