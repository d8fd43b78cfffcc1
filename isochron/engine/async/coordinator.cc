#include "isochron/engine/async/coordinator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "isochron/core/error.h"

namespace isochron {

Coordinator::Coordinator(Dispatcher dispatcher, std::vector<Seat> seats, std::chrono::milliseconds timeout)
    : dispatcher_(std::move(dispatcher)),
      seats_(std::move(seats)),
      timeout_(timeout),
      told_(seats_.size()),
      attending_(seats_.size()) {
}

void Coordinator::open(std::int64_t epoch, std::int64_t end, std::int64_t next_record) {
  if (epoch_ >= 0 && epoch != epoch_) {
    dispatcher_.begin(ClaimPool());
  }
  epoch_ = epoch;
  next_record_ = next_record;
  news_.clear();
  std::ranges::fill(told_, std::size_t{0});
  dispatcher_.open(end);
  heard_ = Clock::now();
}

std::vector<Coordinator::Reply> Coordinator::hear(int rank, const std::string& text) {
  heard_ = Clock::now();
  FreeWords words;
  restore_state(words, State::parse(text));
  const Seat& seat = seats_[static_cast<std::size_t>(rank)];
  attending_[static_cast<std::size_t>(rank)] = true;
  if (seat.worker) {
    if (words.finished) {
      take_report(*seat.worker, words);
    }
    dispatcher_.ask(*seat.worker);
  }
  if (words.stop > 0) {
    stopping_ = true;
    stop_signal_ = std::max(stop_signal_, words.stop - 1);
  }
  if (!words.numbers.empty() && numbers_.empty()) {
    numbers_ = words.numbers;
  }
  if (stopping_ || !numbers_.empty()) {
    dispatcher_.close();
  }
  return answers();
}

void Coordinator::take_report(WorkerId worker, const FreeWords& words) {
  const Decision decision = dispatcher_.controller().decision();
  const Interval used = dispatcher_.finish(
      worker,
      {.worker = worker,
       .batch = words.batch,
       .seconds = words.warm ? words.seconds : kUnknown,
       .cpu = words.cpu,
       .memory = words.memory});
  UpdateRecord record{.step = next_record_++, .epoch = epoch_, .position = used.first};
  record.seconds = words.seconds;
  record.worker = {
      .id = worker,
      .batch = words.batch,
      .start_seconds = words.start,
      .compute_seconds = words.compute_seconds,
      .wait_seconds = words.waited,
      .exchange_seconds = std::max(words.seconds - words.compute_seconds, 0.0)};
  record.learning_rate_factor = words.rate_factor;
  record.reason = decision.reason;
  record.words = decision.words;
  if (noted_decision_ != decision.step) {  // else another record has said so
    record.changed = decision.changed;
    noted_decision_ = decision.step;
  }
  record.loss = words.loss;
  record.staleness = words.staleness;
  unsettled_.push_back(to_json(record));
  if (dispatcher_.settled()) {
    std::ranges::move(unsettled_, std::back_inserter(news_));
    unsettled_.clear();
  }
}

std::vector<Coordinator::Reply> Coordinator::answers() {
  std::vector<Reply> replies;
  for (const WorkOrder& next : dispatcher_.take_orders()) {
    replies.push_back(order(next));
  }
  if (dispatcher_.meeting() && std::ranges::all_of(attending_, [](bool here) { return here; })) {
    return meeting();
  }
  return replies;
}

Coordinator::Reply Coordinator::order(const WorkOrder& order) {
  const int rank = rank_of(order.worker);
  NextWords next = words_for(rank);
  next.first = order.positions.first;
  next.last = order.positions.last;
  next.iteration = order.iteration;
  next.lead = order.lead;
  next.round_samples = order.round_samples;
  attending_[static_cast<std::size_t>(rank)] = false;
  return {.rank = rank, .words = save_state(next).serialize()};
}

std::vector<Coordinator::Reply> Coordinator::meeting() {
  std::vector<Reply> replies;
  for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
    NextWords next = words_for(rank);
    next.meet = true;
    next.last = dispatcher_.claims().next();
    next.iteration = dispatcher_.clocks().slowest();
    replies.push_back({.rank = rank, .words = save_state(next).serialize()});
  }
  dispatcher_.dismiss();
  attending_.assign(seats_.size(), false);
  return replies;
}

NextWords Coordinator::words_for(int rank) {
  const Decision& decision = dispatcher_.controller().decision();
  NextWords next;
  next.batch_sizes = decision.batch_sizes;
  next.rate_factor = decision.learning_rate_factor;
  next.reason = decision.words;
  std::size_t& told = told_[static_cast<std::size_t>(rank)];
  for (; told < news_.size(); ++told) {
    next.news += news_[told] + "\n";
  }
  next.stopping = stopping_;
  next.stop_signal = stop_signal_;
  next.numbers = numbers_;
  return next;
}

int Coordinator::rank_of(WorkerId worker) const {
  const auto found = std::ranges::find(seats_, std::optional(worker), &Seat::worker);
  ISO_CHECK(found != seats_.end(), "an order for somebody who is not there");
  return static_cast<int>(found - seats_.begin());
}

// Whoever is at work while others wait, and nobody has been heard of for long. Twice the time-out, since those at work
// may themselves wait for a server that does not answer, which they notice first.
void Coordinator::check_patience() {
  if (std::ranges::none_of(attending_, [](bool here) { return here; }) || Clock::now() - heard_ < 2 * timeout_) {
    return;
  }
  std::vector<Peer> late;
  std::string words = "workers have waited for twice the time-out of " + std::to_string(timeout_.count()) + " ms for";
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    if (!attending_[rank]) {
      late.push_back(seats_[rank].peer);
      words += " rank " + std::to_string(rank) + " on " + seats_[rank].peer.host;
    }
  }
  throw TimeoutError(words, late);
}

}  // namespace isochron
