#include "isochron/view/run_view.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "isochron/core/trace/utf8.h"

namespace isochron::view {
namespace {

constexpr std::size_t kLongestName = 80;    // bytes
constexpr std::size_t kLongestWords = 400;  // bytes

/// Logs come from outside: no text of theirs may fill a page.
std::string shortened(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? to_utf8(text) : to_utf8(text.substr(0, longest)) + "…";
}

double typical_batch(const RunHeader& header) {
  const auto workers = static_cast<double>(std::max<std::size_t>(1, header.workers.size()));
  return std::max(1.0, static_cast<double>(header.global_batch) / workers);
}

bool deserves_a_look(Reason reason) {
  return reason == Reason::kSpeedChanged || reason == Reason::kRosterChanged;
}

/// What concerns the job as a whole comes without a worker.
bool concerns_all(std::string_view event) {
  const EventKind* const kind = find_event(event);
  return kind != nullptr && kind->concerns_job;
}

/// Sums must stay sums whatever a log says.
double finite(double value) {
  return std::isfinite(value) ? value : 0.0;
}

}  // namespace

RunView::RunView(RunHeader header, std::size_t cells)
    : header_(std::move(header)),
      timeline_(cells),
      curves_(typical_batch(header_)),
      gain_(header_.global_batch, header_.workers) {
  for (std::string* const text :
       {&header_.program, &header_.version, &header_.policy, &header_.cluster, &header_.model, &header_.dataset}) {
    *text = shortened(*text, kLongestName);
  }
  for (const RunHeader::Member& member : header_.workers) {
    const std::size_t place = place_of(member.id, workers_.size());
    if (place < kMostWorkers) {
      workers_[place].name = shortened(member.name, kLongestName);
      workers_[place].kind = shortened(member.kind, kLongestName);
    }
  }
  if (header_.workers.size() > workers_.size()) {
    left_out_ = header_.workers.size() - workers_.size();
  }
}

std::size_t RunView::place_of(WorkerId id, std::size_t guess) {
  if (guess < workers_.size() && workers_[guess].id == id) {
    return guess;
  }
  if (const auto found = places_.find(id); found != places_.end()) {
    return found->second;
  }
  if (workers_.size() == kMostWorkers) {
    return kMostWorkers;
  }
  places_[id] = workers_.size();
  workers_.push_back({.id = id, .name = "worker " + std::to_string(id), .kind = "", .last = {}});
  return workers_.size() - 1;
}

/// In training time: what lies between steps is left out, and a process that goes on with a run has a clock of its own.
/// `alone`: nothing else was under way when it began.
double RunView::start_of(double start_seconds, bool alone) {
  const double start = finite(start_seconds);
  const double gap = shifted(start) - end_;
  const bool resumed = std::exchange(resumed_, false);
  if (resumed || (alone && gap > 0.0)) {
    between_ += std::max(0.0, gap);
    shift_ = end_ - start;
  }
  return shifted(start);
}

void RunView::add(const StepRecord& record) {
  const double start = start_of(record.start_seconds, true);
  meter_.add(record);
  gain_.add(record);
  add(record, start, record.workers);
  for (const WorkerStep& worker : record.workers) {
    last_.samples += static_cast<double>(worker.batch);
  }
}

void RunView::add(const UpdateRecord& record) {
  // Within an epoch a longer update, which ends later, may have begun in what seems to be a gap. Between epochs there
  // is a barrier: all updates of the one before have ended, and are known.
  const bool after_barrier = timeline_.records() == 0 || record.epoch != epoch_;
  epoch_ = record.epoch;
  const double start = start_of(record.worker.start_seconds, after_barrier);
  UpdateRecord moved = record;
  moved.worker.start_seconds = start;
  meter_.add(moved);
  add(record, start, {&record.worker, 1});
  for (const WorkerTotals& worker : workers_) {
    last_.samples += worker.present ? static_cast<double>(worker.last.batch) : 0.0;
  }
}

template <class Record>
void RunView::add(const Record& record, double start, std::span<const WorkerStep> workers) {
  const double seconds = std::max(0.0, finite(record.seconds));
  Bin bin{.first_step = record.step, .last_step = record.step, .start = start, .end = start + seconds, .cells = {}};
  bin.seconds.add(record.seconds);
  bin.loss.add(record.loss);
  bin.balance.add(meter_.last().balance);
  bin.utilization.add(meter_.last().utilization);
  add_workers(workers, start, bin);
  if (const double rate = meter_.last().samples_per_second; rate > 0.0) {
    bin.rate.add(rate);
    bin.busy = bin.samples / rate;
  }
  end_ = std::max(end_, bin.end);
  if (record.changed) {
    ++adjustments_;
    decisions_.add(
        {.step = record.step,
         .seconds = start,
         .what = std::string(to_string(record.reason)),
         .worker = "",
         .words = shortened(record.words, kLongestWords)});
    if (deserves_a_look(record.reason)) {
      timeline_.pin_here();
    }
  }
  timeline_.add(std::move(bin));
  last_ = {
      .step = record.step,
      .seconds = record.seconds,
      .learning_rate_factor = record.learning_rate_factor,
      .loss = record.loss};
}

void RunView::add_workers(std::span<const WorkerStep> workers, double start, Bin& bin) {
  bin.cells.resize(workers_.size());
  std::size_t unplaced = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const WorkerStep& worker = workers[i];
    bin.samples += static_cast<double>(worker.batch);
    const std::size_t place = place_of(worker.id, i);
    if (place == kMostWorkers) {
      ++unplaced;
      continue;
    }
    bin.cells.resize(std::max(bin.cells.size(), place + 1));
    Cell& cell = bin.cells[place];
    cell.batch.add(static_cast<double>(worker.batch));
    cell.compute.add(worker.compute_seconds);
    cell.wait.add(worker.wait_seconds);
    cell.exchange.add(worker.exchange_seconds);
    cell.offset.add(shifted(worker.start_seconds) - start);
    curves_.observe(place, static_cast<double>(worker.batch), worker.compute_seconds);
    WorkerTotals& totals = workers_[place];
    totals.present = true;
    totals.last = worker;
    ++totals.steps;
    totals.samples += static_cast<double>(worker.batch);
    totals.compute_seconds += finite(worker.compute_seconds);
    totals.wait_seconds += finite(worker.wait_seconds);
    totals.inner_wait_seconds += finite(worker.inner_wait_seconds);
    totals.exchange_seconds += finite(worker.exchange_seconds);
    totals.work += finite(worker.work);
    totals.padding += finite(worker.padding);
  }
  left_out_ = std::max(left_out_, unplaced);
}

void RunView::add(const EventRecord& record) {
  meter_.add(record);
  std::string worker;
  if (!concerns_all(record.event)) {
    if (const std::size_t place = place_of(record.worker, record.worker); place < kMostWorkers) {
      WorkerTotals& totals = workers_[place];
      if (is(record, Event::kJoin) && !record.words.empty()) {
        totals.name = shortened(record.words, kLongestName);
      }
      totals.present = !removes_worker(record);
      worker = totals.name;
    }
  }
  std::string words = is(record, Event::kJoin) ? "" : shortened(record.words, kLongestWords);
  if (!worker.empty() && words.starts_with(worker + ": ")) {
    words.erase(0, worker.size() + 2);  // the name is told already
  }
  if (is(record, Event::kForecast)) {
    forecast_ = words;
  }
  if (sets_step(record)) {
    timeline_.forget_from(record.step);
    resumed_ = resumed_ || is(record, Event::kResume);
  }
  events_.add(
      {.step = record.step,
       .seconds = is(record, Event::kResume) ? end_ : std::min(end_, shifted(finite(record.seconds))),
       .what = shortened(record.event, kLongestName),
       .worker = worker,
       .words = words});
  timeline_.pin_here();
}

void RunView::add(const EvaluationRecord& record) {
  EvaluationRecord moved = record;
  moved.seconds = std::min(end_, shifted(finite(record.seconds)));
  evaluations_.add(moved);
}

std::vector<std::vector<Curve::Point>> RunView::curves() const {
  std::vector<std::string> kinds;
  std::ranges::transform(workers_, std::back_inserter(kinds), &WorkerTotals::kind);
  return curves_.curves(kinds);
}

Summary RunView::summary() const {
  const ShareGain::Estimate gain = gain_.estimate();
  Summary summary{
      .steps = timeline_.records(),
      .seconds = meter_.seconds(),
      .between_seconds = between_,
      .samples_per_second = meter_.samples_per_second(),
      .step_seconds = meter_.step_seconds(),
      .balance = meter_.balance(),
      .utilization = meter_.utilization(),
      .adjustments = adjustments_,
      .over_equal_shares = gain.now,
      .best_over_now = gain.best / gain.now,
      .loss = last_.loss};
  if (evaluations_.total() > 0) {
    summary.accuracy = evaluations_.back().accuracy;
  }
  return summary;
}

}  // namespace isochron::view
