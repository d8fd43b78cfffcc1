// A whole job in one process: replicas, a tiny exact model on each, and a scheduler that kills, adds, stops and resumes
// workers, runs them out of memory, spoils gradients and loses reports at any transition of the protocol. Data is dealt
// by count or by cost, and a job may leave an epoch early or turn to other data and back (schedule_data.cc).
//
// Everything is a function of a seed. Faults happen in the first `limit` choices only, so that a schedule that fails
// can be cut to the shortest prefix that still does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/random/random.h"
#include "isochron/core/replica/replica.h"

namespace isochron {

inline std::string text(std::int64_t number) {
  return std::to_string(number);
}

/// What a schedule breaks; the text says what.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One of the two data that a job may have, and an epoch of it.
using DataEpoch = std::pair<std::size_t, std::int64_t>;

/// What a model learns is the sum of the samples that it has seen; what it has seen is counted per epoch.
struct TinyModel {
  std::uint64_t sum = 0;
  std::map<std::pair<DataEpoch, std::int64_t>, int> uses;  // of a sample in an epoch
  std::map<DataEpoch, std::int64_t> left_early;            // after so many samples
  bool operator==(const TinyModel&) const = default;
};

/// Faults that a test puts into the harness to see that they are noticed.
enum class Sabotage : std::uint8_t {
  kNone,
  kStaleTransfer,  // whoever is behind gets the state of a replica without the model
};

class Schedule {
 public:
  Schedule(std::uint64_t seed, std::int64_t limit, Sabotage sabotage = Sabotage::kNone);

  /// Throws Violation, or whatever a replica throws that it should not.
  void run();
  [[nodiscard]] std::int64_t choices() const { return choices_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// What happened, in order.
  [[nodiscard]] const std::vector<std::string>& trace() const { return trace_; }
  /// How often each kind of thing happened.
  [[nodiscard]] const std::map<std::string, std::int64_t>& counts() const { return counts_; }

 private:
  struct Node {
    Replica replica;
    TinyModel model;
    bool lost = false;
  };
  struct Data {
    std::int64_t size = 0;
    bool stream = false;
    std::optional<State> place;  // where the job has left it
  };
  struct Checkpoint {
    State state;
    TinyModel model;
    std::array<Data, 2> data;
    std::size_t present = 0;
  };

  // Choices.
  bool chance(std::uint64_t one_in);
  std::size_t below(std::size_t bound) { return random_.below(bound); }
  void note(const std::string& what, const std::string& details = "");

  // The job.
  [[nodiscard]] Worker random_worker();
  void start(std::size_t count);
  void between_steps();
  void step();
  void compute(std::vector<StepReport>& reports);
  [[nodiscard]] bool fails_before_the_reports();
  void refuse_a_flipped_digest(std::vector<StepReport> reports);
  void refuse_calls_out_of_order();
  void lose_reports(const std::vector<StepReport>& reports);
  void finish(const std::vector<StepReport>& reports);
  void handle_non_finite(const std::vector<StepReport>& reports);
  void kill_some(std::size_t at_least);
  void come_together();
  bool try_to_come_together();
  void save();
  void resume();
  void roll_back();
  void change_bounds();

  // The data.
  void draw_data(std::uint64_t seed);
  [[nodiscard]] const Data& data() const { return data_[present_]; }
  void open(Replica& replica) const;
  [[nodiscard]] std::vector<float> works(std::int64_t epoch, std::int64_t first, std::int64_t count) const;
  const StepPlan& plan(Replica& replica) const;
  void use(Node& node, bool learn) const;
  void leave_epoch_early();
  void turn_to_other_data();
  [[nodiscard]] bool epoch_is_over() const;
  [[nodiscard]] std::int64_t finished_epochs(std::size_t which) const;

  // Checks.
  static void require(bool holds, const std::string& what);
  void check_plan(const Replica& replica, const StepPlan& plan) const;
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> smallest_and_remainder(std::span<const Worker> workers) const;
  void check_granularities(const Replica& replica, std::span<const std::int64_t> sizes) const;
  void check_dealt(const Replica& replica, const StepPlan& plan) const;
  void check_equal(bool whole) const;
  void check_epochs() const;
  [[nodiscard]] bool has_room(const Replica& replica) const;
  void check_refusal(const Replica& replica, const std::string& words) const;
  template <class Result>
  void check_same(const std::vector<Result>& results, const std::string& what) const {
    require(std::ranges::adjacent_find(results, std::not_equal_to<>{}) == results.end(), what + " differ");
  }

  Random random_;
  std::int64_t limit_;
  Sabotage sabotage_;
  std::int64_t choices_ = 0;
  std::int64_t steps_ = 0;
  bool over_ = false;  // the job cannot go on, as all replicas agree
  std::vector<std::string> trace_;
  std::map<std::string, std::int64_t> counts_;

  JobSettings options_;
  std::array<Data, 2> data_;
  std::size_t present_ = 0;                   // of data_
  bool two_ = false;                          // the job turns from the one to the other and back
  bool by_cost_ = false;                      // the only data is dealt by cost
  bool arriving_ = false;                     // and its works are known only as they come
  bool granular_ = false;                     // some workers have granularities
  ArrivingWorks cost_;                        // how works add up
  std::vector<std::unique_ptr<Node>> nodes_;  // by rank
  std::optional<Checkpoint> checkpoint_;
  double now_ = 0.0;
  bool want_stop_ = false;
  bool non_finite_ = false;
  bool memory_ran_out_ = false;
};

/// As values; one NaN is like another.
bool same_state(const State& left, const State& right);

/// Empty if the schedule holds; otherwise what it breaks, with the shortest prefix of faults that breaks something.
std::string failure_of_schedule(std::uint64_t seed, Sabotage sabotage = Sabotage::kNone);

}  // namespace isochron
