// The datasets of a job in step: each has its own place in the data and its own ledger, and one of them is being
// trained on. A second one is a loader() of other data, for pre-training and fine-tuning or for a curriculum. The
// replica holds the place of the present one; those of the others wait here. All workers go from one to another between
// the same two steps. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/replica/replica.h"
#include "isochron/core/state.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/job.h"

namespace isochron {

class JobDatasets {
 public:
  // Both are shared with the rest of the job.
  JobDatasets(const JobOptions& options, Replica& replica) : options_(options), replica_(replica) {}

  struct Data {
    std::shared_ptr<const data::Dataset> dataset;
    LoaderOptions loader;
    std::unique_ptr<BatchSource> source;
    std::optional<State> place;  // while it is another one's turn
  };

  // The number of this data, from 0 in the order of their first loader(). The same data is the same object, or one of
  // the same kind, size and name. Throws std::invalid_argument if the job cannot have it.
  std::size_t add(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader);
  // It is this one's turn. Between two steps.
  void select(std::size_t number);
  std::size_t selected() const { return selected_; }
  std::size_t count() const { return data_.size(); }
  const Data& present() const { return data_[selected_]; }
  std::int64_t epoch_of(std::size_t number) const;
  // Nothing is read any more.
  void close();

  // The replica's state at the place of the first dataset, and where the others are; between two steps.
  State state();
  // The same as it was before the step under way; only reads. Throws isochron::Error if it is not the first dataset's
  // turn.
  State state_before_step() const;
  // In a new run, before or after the datasets are known.
  void restore(const State& saved);
  // Throws isochron::Error if the state was saved on another dataset than the present one.
  std::vector<EventRecord> roll_back(const State& saved, const std::string& reason, double now);

 private:
  void check(const data::Dataset& dataset, const LoaderOptions& loader) const;
  void open_first();
  // To the replica's state at the place of the first dataset.
  void add_places(State& state) const;
  std::unique_ptr<BatchSource> make_source(const Data& data) const;
  // Brings the replica to the first dataset, lets `change` change it, takes the places of the others from `saved`, and
  // goes back to the present one.
  template <class Change>
  void change_places(const State& saved, const Change& change);

  const JobOptions& options_;
  Replica& replica_;
  std::vector<Data> data_;
  std::size_t selected_ = 0;
  std::map<std::size_t, State> saved_places_;  // of datasets that a restored job has not been given yet
};

}  // namespace isochron
