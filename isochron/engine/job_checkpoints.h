// The checkpoints of a job in step: it saves them, goes on from one in a new run, and goes back to the last one.
#pragma once

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

  // All are collective.

  void save(const std::filesystem::path& path);
  void restore(const std::filesystem::path& path);
  // Whether there is a checkpoint of this run to go back to.
  bool empty() const { return last_.empty(); }
  const std::filesystem::path& last() const { return last_; }
  // To the last one. `reason` is for the event.
  std::vector<EventRecord> roll_back(const std::string& reason, double now);

 private:
  State read(const std::filesystem::path& path);

  JobDatasets& datasets_;
  Membership& membership_;
  TrainedModel& model_;
  Recovery& recovery_;
  std::filesystem::path last_;
};

}  // namespace isochron
