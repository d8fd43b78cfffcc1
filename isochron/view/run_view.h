// What is shown of a run, gathered record by record in bounded memory: the model behind the report, the live page and
// the terminal view.
//
// Adding a step costs O(workers). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/trace/run_meter.h"
#include "isochron/core/trace/share_gain.h"
#include "isochron/view/curve_learner.h"
#include "isochron/view/first_and_last.h"
#include "isochron/view/timeline.h"

namespace isochron::view {

/// Something that happened, or a changed split with the policy's reason.
struct Note {
  std::int64_t step = 0;
  double seconds = 0.0;
  std::string what;    // the event's or the reason's name
  std::string worker;  // empty: about all
  std::string words;
};

struct WorkerTotals {
  WorkerId id = 0;
  std::string name;
  std::string kind;
  bool present = true;  // it has not left
  WorkerStep last;
  std::int64_t steps = 0;
  double samples = 0.0;
  double compute_seconds = 0.0;
  double wait_seconds = 0.0;
  double inner_wait_seconds = 0.0;
  double exchange_seconds = 0.0;
  double work = 0.0;     // as in WorkerStep; 0: by count
  double padding = 0.0;  // that part of it
};

/// The whole run in numbers; kUnknown where nothing says.
struct Summary {
  std::int64_t steps = 0;        // records of steps
  double seconds = 0.0;          // spent in steps
  double between_seconds = 0.0;  // between them: evaluations, checkpoints, recovery, others' turns
  double samples_per_second = kUnknown;
  Quantiles step_seconds;
  double balance = kUnknown;
  double utilization = kUnknown;
  std::int64_t adjustments = 0;
  double over_equal_shares = kUnknown;  // times as fast as with equal shares, by the last steps
  double best_over_now = kUnknown;      // times as fast as now, with the best shares
  double loss = kUnknown;               // of the last step
  double accuracy = kUnknown;           // of the last evaluation
};

class RunView {
 public:
  /// More workers than this count in the sums but have no lines of their own.
  static constexpr std::size_t kMostWorkers = 1024;
  static constexpr std::size_t kDefaultCells = std::size_t{1} << 17U;

  /// `cells` bounds workers times bins.
  explicit RunView(RunHeader header, std::size_t cells = kDefaultCells);

  void add(const StepRecord& record);
  void add(const UpdateRecord& record);
  void add(const EventRecord& record);
  void add(const EvaluationRecord& record);

  [[nodiscard]] const RunHeader& header() const { return header_; }
  [[nodiscard]] const Timeline& timeline() const { return timeline_; }
  [[nodiscard]] const std::vector<WorkerTotals>& workers() const { return workers_; }
  [[nodiscard]] std::size_t workers_left_out() const { return left_out_; }
  [[nodiscard]] const FirstAndLast<Note>& events() const { return events_; }
  [[nodiscard]] const FirstAndLast<Note>& decisions() const { return decisions_; }
  [[nodiscard]] const FirstAndLast<EvaluationRecord>& evaluations() const { return evaluations_; }
  /// Per worker; see CurveLearner.
  [[nodiscard]] std::vector<std::vector<Curve::Point>> curves() const;
  [[nodiscard]] Summary summary() const;
  /// What a watched run would gain, in words; empty if nobody has said.
  [[nodiscard]] const std::string& forecast() const { return forecast_; }
  /// The last record of a step or an update.
  struct Last {
    std::int64_t step = 0;
    double seconds = 0.0;
    double samples = 0.0;  // of all workers; after an update everybody's last ones
    double learning_rate_factor = 1.0;
    double loss = kUnknown;
  };
  [[nodiscard]] const Last& last() const { return last_; }
  [[nodiscard]] const RunMeter& meter() const { return meter_; }
  [[nodiscard]] const ShareGain& gain() const { return gain_; }

 private:
  /// The worker's place, a new one if it is new; kMostWorkers if there are too many.
  std::size_t place_of(WorkerId id, std::size_t guess);
  /// Takes a step or an update, and its start by the run's clock; what it adds to the meter is there already.
  template <class Record>
  void add(const Record& record, double start, std::span<const WorkerStep> workers);
  double start_of(double start_seconds, bool alone);
  void add_workers(std::span<const WorkerStep> workers, double start, Bin& bin);
  [[nodiscard]] double shifted(double seconds) const { return seconds + shift_; }

  RunHeader header_;
  std::vector<WorkerTotals> workers_;
  std::unordered_map<WorkerId, std::size_t> places_;
  std::size_t left_out_ = 0;
  Timeline timeline_;
  CurveLearner curves_;
  FirstAndLast<Note> events_{1000, 1000};
  FirstAndLast<Note> decisions_{300, 300};
  FirstAndLast<EvaluationRecord> evaluations_{2000, 2000};
  RunMeter meter_;
  ShareGain gain_;
  std::string forecast_;
  Last last_;
  std::int64_t adjustments_ = 0;
  double end_ = 0.0;         // of the last step
  double shift_ = 0.0;       // added to what the log says of time
  double between_ = 0.0;     // seconds between steps, left out
  bool resumed_ = false;     // and no step since
  std::int64_t epoch_ = -1;  // of the last update
};

}  // namespace isochron::view
