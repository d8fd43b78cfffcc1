#include "isochron/core/trace/sample_audit.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "isochron/core/staleness/sync.h"

namespace isochron {
namespace {

constexpr std::int64_t kMostEpochsOfAStep = 1 << 8;         // beside another one
constexpr std::int64_t kMostCount = std::int64_t{1} << 60;  // more doubles than this are not worth counting

/// The name under which an event is counted: those that nobody knows may hold anything.
std::string counted_name(const std::string& event) {
  return find_event(event) == nullptr ? "other" : event;
}

bool is_whole(std::int64_t number) {
  return number >= 0 && number <= kMostPositions;
}

/// Steps are rounds of one or more global batches.
bool in_rounds(const RunHeader& header) {
  return header.sync == to_string(Sync::kLocal);
}

/// Steps go along with those on other data.
bool is_beside(const RunHeader& header) {
  return header.sync == "beside";
}

std::string step_text(std::int64_t step) {
  return "step " + std::to_string(step);
}

}  // namespace

bool SampleAudit::proven() const {
  return finding_count == 0 && std::ranges::all_of(epochs, &EpochAudit::exact);
}

std::int64_t SampleAudit::finished_epochs() const {
  return std::ranges::count_if(epochs, &EpochAudit::finished);
}

std::int64_t SampleAudit::epochs_cut_short() const {
  return std::ranges::count_if(epochs, &EpochAudit::cut_short);
}

void SampleAudit::complain(std::int64_t line, std::string words) {
  ++finding_count;
  if (findings.size() < kMostPlaces) {
    findings.push_back({.line = line, .words = std::move(words)});
  }
}

SampleAuditor::SampleAuditor(const RunHeader& header) {
  audit_.header = header;
}

bool SampleAuditor::asynchronous() const {
  return !audit_.header.sync.empty() && !in_rounds(audit_.header) && !is_beside(audit_.header);
}

bool SampleAuditor::size_is_known() const {
  return audit_.header.samples_per_epoch > 0 && is_whole(audit_.header.samples_per_epoch);
}

std::int64_t SampleAuditor::epoch_size() const {
  return size_is_known() ? audit_.header.samples_per_epoch : kMostPositions;
}

void SampleAuditor::add(const EventRecord& record, std::int64_t line) {
  ++audit_.events[counted_name(record.event)];
  if (is(record, Event::kEpochEnd) && !steps_.empty()) {
    said_ends_.emplace(steps_.back().epoch, steps_.back().positions.last);
  }
  if (!sets_step(record)) {
    return;
  }
  if (record.step > next_step_ && !is(record, Event::kOtherData)) {
    audit_.complain(
        line, record.event + " to " + step_text(record.step) + ", but the log ends before " + step_text(next_step_));
  }
  while (!steps_.empty() && steps_.back().number >= record.step) {
    audit_.taken_back += steps_.back().goes_on ? 0 : 1;
    steps_.pop_back();
  }
  next_step_ = record.step;
}

void SampleAuditor::add(const StepRecord& record, std::int64_t line) {
  add(record, record.workers, line);
}

void SampleAuditor::add(const UpdateRecord& record, std::int64_t line) {
  add(record, {&record.worker, 1}, line);
}

template <class Record>
void SampleAuditor::add(const Record& record, std::span<const WorkerStep> workers, std::int64_t line) {
  if (record.step != next_step_) {
    audit_.complain(line, step_text(record.step) + " comes where " + step_text(next_step_) + " should");
  }
  next_step_ = std::min(record.step, kMostPositions) + 1;
  if (!is_whole(record.epoch) || !is_whole(record.position)) {
    audit_.complain(line, step_text(record.step) + " does not say which samples it used");
  } else {
    keep(record, workers, line);
  }
}

// Shares are taken as long as they fit the epoch, so that sums stay within it.
template <class Record>
void SampleAuditor::keep(const Record& record, std::span<const WorkerStep> workers, std::int64_t line) {
  const std::int64_t size = epoch_size();
  if (record.position >= size) {
    audit_.complain(line, step_text(record.step) + " begins beyond the epoch's " + std::to_string(size) + " samples");
    return;
  }
  if (is_beside(audit_.header)) {
    keep_beside(record, workers, line);
    return;
  }
  const std::int64_t room = size - record.position;
  Step step{.line = line, .number = record.step, .epoch = record.epoch};
  std::int64_t samples = 0;
  for (const WorkerStep& worker : workers) {
    if (worker.batch < 0 || worker.batch > room - samples) {
      audit_.complain(
          line,
          step_text(record.step) + ": the batch of worker " + std::to_string(worker.id) + ", " +
              std::to_string(worker.batch) + ", does not fit the epoch's " + std::to_string(size) + " samples");
      return;
    }
    samples += worker.batch;
    step.shares.push_back({.worker = worker.id, .samples = worker.batch});
  }
  const std::int64_t expected = std::min(audit_.header.global_batch, room);
  // A stream may have fewer, a round has one or more global batches.
  const bool several = in_rounds(audit_.header) && samples > expected && (samples == room || samples % expected == 0);
  const bool fits = samples == expected || several || (!size_is_known() && samples <= expected);
  if (!asynchronous() && !fits) {
    audit_.complain(
        line,
        step_text(record.step) + ": the batch sizes add up to " + std::to_string(samples) + ", not " +
            std::to_string(expected));
  }
  step.positions = {.first = record.position, .last = record.position + samples};
  steps_.push_back(std::move(step));
}

/// A step beside one on other data has as many samples as that one, at most a global batch.
template <class Record>
void SampleAuditor::keep_beside(const Record& record, std::span<const WorkerStep> workers, std::int64_t line) {
  const std::int64_t size = epoch_size();
  std::int64_t left = std::min(audit_.header.global_batch, kMostEpochsOfAStep * size);
  std::vector<Step> parts{{.line = line, .number = record.step, .epoch = record.epoch}};
  parts.back().positions = {.first = record.position, .last = record.position};
  for (const WorkerStep& worker : workers) {
    if (worker.batch < 0 || worker.batch > left) {
      audit_.complain(
          line,
          step_text(record.step) + ": the batch of worker " + std::to_string(worker.id) + ", " +
              std::to_string(worker.batch) + ", does not fit the global batch of " +
              std::to_string(audit_.header.global_batch) + " samples");
      return;
    }
    left -= worker.batch;
    for (std::int64_t rest = worker.batch; rest > 0;) {
      if (parts.back().positions.last == size) {
        parts.push_back({.line = line, .number = record.step, .epoch = parts.back().epoch + 1, .goes_on = true});
      }
      Interval& positions = parts.back().positions;
      const std::int64_t samples = std::min(rest, size - positions.last);
      positions.last += samples;
      parts.back().shares.push_back({.worker = worker.id, .samples = samples});
      rest -= samples;
    }
  }
  std::ranges::move(parts, std::back_inserter(steps_));
}

SampleAudit SampleAuditor::finish() {
  if (!size_is_known() && said_ends_.empty()) {
    audit_.complain(1, "the header does not say how many samples an epoch has");
  }
  for (const Step& step : steps_) {
    account(step);
  }
  audit_.steps = std::ranges::count(steps_, false, &Step::goes_on);
  find_absent_epochs();
  for (auto& [number, epoch] : epochs_) {
    close_epoch(epoch, ledgers_.at(number), number == epochs_.rbegin()->first);
    audit_.epochs.push_back(std::move(epoch));
  }
  return std::move(audit_);
}

void SampleAuditor::account(const Step& step) {
  Ledger& ledger = ledgers_.try_emplace(step.epoch, epoch_size()).first->second;
  EpochAudit& epoch = epochs_[step.epoch];
  epoch.epoch = step.epoch;
  ends_.try_emplace({step.epoch, step.positions.last}, step.number);
  std::int64_t first = step.positions.first;
  for (const Share& share : step.shares) {
    ledger.stage({.positions = {.first = first, .last = first + share.samples}, .worker = share.worker});
    first += share.samples;
  }
  const std::size_t before = ledger.duplicates().size();
  ledger.commit();
  for (std::size_t i = before; i < ledger.duplicates().size(); ++i) {
    const Use& use = ledger.duplicates()[i];
    epoch.doubled = std::min(epoch.doubled + use.positions.size(), kMostCount);
    if (epoch.twice.size() < SampleAudit::kMostPlaces) {
      epoch.twice.push_back({.line = step.line, .step = step.number, .worker = use.worker, .positions = use.positions});
    }
  }
}

/// Epochs are numbered from 0, and none can be left out.
void SampleAuditor::find_absent_epochs() {
  std::int64_t next = 0;
  for (const auto& [number, epoch] : epochs_) {
    if (number > next) {
      const std::string last = number - 1 > next ? " to " + std::to_string(number - 1) : "";
      audit_.complain(0, "no step of epoch " + std::to_string(next) + last + " is in the log");
    }
    next = number + 1;
  }
}

void SampleAuditor::close_epoch(EpochAudit& epoch, const Ledger& ledger, bool is_last) {
  const std::vector<Interval> used = ledger.intervals();
  const std::int64_t reached = used.empty() ? 0 : used.back().last;
  epoch.used = ledger.used();
  // Workers that are not in step finish in any order, so that the last sample's use does not end the epoch.
  const bool said = said_ends_.contains({epoch.epoch, reached});
  epoch.cut_short = said && size_is_known() && reached < ledger.size();
  epoch.finished = !is_last || said || (asynchronous() ? epoch.used == ledger.size() : reached == ledger.size());
  if (epoch.finished && !said && !size_is_known()) {
    audit_.complain(0, "nothing says where epoch " + std::to_string(epoch.epoch) + " ended");
    return;
  }
  for (const Interval& gap : ledger.gaps()) {
    if ((!epoch.finished && (asynchronous() || gap.first == reached)) || (said && gap.first == reached)) {
      continue;  // to come, or not wanted
    }
    epoch.missing += gap.size();
    if (epoch.gaps.size() < SampleAudit::kMostPlaces) {
      const auto before = ends_.find({epoch.epoch, gap.first});
      epoch.gaps.push_back({.after_step = before == ends_.end() ? -1 : before->second, .positions = gap});
    }
  }
}

}  // namespace isochron
