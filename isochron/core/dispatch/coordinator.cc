#include "isochron/core/dispatch/coordinator.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "isochron/core/error.h"

namespace isochron {

Coordinator::Coordinator(Dispatcher dispatcher, const std::vector<std::optional<WorkerId>>& workers)
    : dispatcher_(std::move(dispatcher)) {
  for (const std::optional<WorkerId>& worker : workers) {
    members_.push_back({.worker = worker});
  }
}

std::vector<Coordinator::Reply> Coordinator::open(std::int64_t epoch, std::int64_t end, std::int64_t next_record) {
  if (epoch_ >= 0 && epoch != epoch_) {
    dispatcher_.begin(ClaimPool());
  }
  epoch_ = epoch;
  next_record_ = next_record;
  records_.clear();
  for (Member& member : members_) {
    member.told = 0;
  }
  dispatcher_.open(end);
  open_ = true;
  for (const auto& [rank, report] : std::exchange(early_, {})) {
    take(rank, report);
  }
  return answers();
}

std::vector<Coordinator::Reply> Coordinator::hear(int rank, const IterationReport& report) {
  ISO_CHECK(rank >= 0 && std::cmp_less(rank, members_.size()), "a report of a rank that is not of this job");
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (report.sequence <= member.heard) {
    const bool is_last = report.sequence == member.heard && member.answer;
    return is_last ? std::vector<Reply>{{.rank = rank, .assignment = *member.answer}} : std::vector<Reply>{};
  }
  member.heard = report.sequence;
  member.answer.reset();
  member.here = true;
  if (!open_) {
    early_.emplace_back(rank, report);
    return {};
  }
  take(rank, report);
  return answers();
}

void Coordinator::take(int rank, const IterationReport& report) {
  if (const std::optional<WorkerId> worker = members_[static_cast<std::size_t>(rank)].worker) {
    if (report.finished) {
      take_finished(*worker, report);
    }
    dispatcher_.ask(*worker);
  }
  if (report.stop > 0) {
    stopping_ = true;
    stop_signal_ = std::max(stop_signal_, report.stop - 1);
  }
  if (non_finite_.empty()) {
    non_finite_ = report.non_finite;
  }
  if (stopping_ || !non_finite_.empty()) {
    dispatcher_.close();
  }
}

void Coordinator::take_finished(WorkerId worker, const IterationReport& report) {
  const Decision decision = dispatcher_.controller().decision();
  const Interval used = dispatcher_.finish(
      worker,
      {.worker = worker,
       .batch = report.batch,
       .seconds = report.warm ? report.seconds : kUnknown,
       .usage = report.usage});
  UpdateRecord record{.step = next_record_++, .epoch = epoch_, .position = used.first};
  record.seconds = report.seconds;
  record.worker = {
      .id = worker,
      .batch = report.batch,
      .start_seconds = report.start,
      .compute_seconds = report.compute_seconds,
      .wait_seconds = report.waited,
      .exchange_seconds = std::max(report.seconds - report.compute_seconds, 0.0),
      .usage = logged(report.usage)};
  record.learning_rate_factor = report.rate_factor;
  record.reason = decision.reason;
  record.words = decision.words;
  if (noted_decision_ != decision.step) {  // else another record has said so
    record.changed = decision.changed;
    noted_decision_ = decision.step;
  }
  record.loss = report.loss;
  record.staleness = report.staleness;
  unsettled_.push_back(std::move(record));
  if (dispatcher_.settled()) {
    std::ranges::move(unsettled_, std::back_inserter(records_));
    unsettled_.clear();
  }
}

std::vector<Coordinator::Reply> Coordinator::answers() {
  std::vector<Reply> replies;
  for (const WorkOrder& order : dispatcher_.take_orders()) {
    Assignment assignment{.first = order.positions.first, .last = order.positions.last, .iteration = order.iteration};
    assignment.lead = order.lead;
    assignment.round_samples = order.round_samples;
    replies.push_back(answer(rank_of(order.worker), std::move(assignment)));
  }
  if (dispatcher_.at_barrier() && std::ranges::all_of(members_, &Member::here)) {
    return barrier();
  }
  return replies;
}

Coordinator::Reply Coordinator::answer(int rank, Assignment assignment) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  assignment.sequence = member.heard;
  assignment.decision = dispatcher_.controller().decision();
  assignment.records.assign(records_.begin() + static_cast<std::ptrdiff_t>(member.told), records_.end());
  assignment.stopping = stopping_;
  assignment.stop_signal = stop_signal_;
  assignment.non_finite = non_finite_;
  member.told = records_.size();
  member.here = false;
  member.answer = assignment;
  return {.rank = rank, .assignment = std::move(assignment)};
}

std::vector<Coordinator::Reply> Coordinator::barrier() {
  std::vector<Reply> replies;
  const Assignment barrier{
      .barrier = true,
      .last = dispatcher_.claims().next(),
      .iteration = dispatcher_.clocks().slowest(),
      .controller = dispatcher_.controller().state().serialize()};
  for (int rank = 0; std::cmp_less(rank, members_.size()); ++rank) {
    replies.push_back(answer(rank, barrier));
  }
  dispatcher_.dismiss();
  open_ = false;
  return replies;
}

int Coordinator::rank_of(WorkerId worker) const {
  const auto found = std::ranges::find(members_, std::optional(worker), &Member::worker);
  ISO_CHECK(found != members_.end(), "an assignment for somebody who is not there");
  return static_cast<int>(found - members_.begin());
}

void Coordinator::leave(int rank) {
  members_[static_cast<std::size_t>(rank)].left = true;
}

std::vector<int> Coordinator::late() const {
  std::vector<int> ranks;
  if (std::ranges::any_of(members_, &Member::here)) {
    for (int rank = 0; std::cmp_less(rank, members_.size()); ++rank) {
      if (!members_[static_cast<std::size_t>(rank)].here) {
        ranks.push_back(rank);
      }
    }
  }
  return ranks;
}

std::vector<int> Coordinator::missing() const {
  std::vector<int> ranks = late();
  std::erase_if(ranks, [this](int rank) { return !members_[static_cast<std::size_t>(rank)].left; });
  return ranks;
}

}  // namespace isochron
