// The checkpoints of a job in step: it saves them, goes on from one in a new run, and goes back to the last one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isochron/core/replica/replica.h"
#include "isochron/engine/job_datasets.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/recovery.h"
#include "isochron/engine/trained_model.h"

namespace isochron {

class JobCheckpoints {
 public:
  JobCheckpoints(JobDatasets& datasets, Membership& membership, TrainedModel& model, Recovery& recovery)
      : datasets_(datasets), membership_(membership), model_(model), recovery_(recovery) {}

  // Collective.

  void save(const std::filesystem::path& path);
  void restore(const std::filesystem::path& path);
  // Whether there is a checkpoint of this run to go back to.
  bool empty() const { return last_.empty(); }
  const std::filesystem::path& last() const { return last_; }
  // To the last one. `reason` is for the event.
  std::vector<EventRecord> roll_back(const std::string& reason, double now);

  // This worker alone, without any exchange: the state before the step under way, as Steps::while_waiting permits. It
  // is without what compression owes, which only all know together. False, writing nothing, if the folder has a
  // checkpoint of that step or a later one.
  bool save_before_step(const std::filesystem::path& folder, std::int64_t step) const;

 private:
  State read(const std::filesystem::path& path);

  JobDatasets& datasets_;
  Membership& membership_;
  TrainedModel& model_;
  Recovery& recovery_;
  std::filesystem::path last_;
};

}  // namespace isochron
