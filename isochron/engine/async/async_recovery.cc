// When a worker or a server is lost. Everybody notices, since the channel fails for all, and comes here from wherever
// it was: asking for work, pulling, pushing, or at a meeting.
//
//   a) It lets go of channel and servers, but keeps its chunks of the parameters and an update that is on its way.
//   b) The survivors shrink the group (membership.h) and tell one another what they know: which samples were used, who
//      is at which, which updates have arrived at which server.
//   c) An update of the lost one counts if some of it has arrived at a server that is left; otherwise its samples go
//      back to the pool. So no sample is used twice, and none is left out.
//   d) Chunks that lay on the lost one are shared out with the values that a survivor pulled last; what their optimizer
//      had learned is lost with it, as are updates since that pull.
//   e) In rounds (bound 0), a round that was not over on all servers is left out by all and done again.
//   f) A new coordinator goes on where the old one was, and updates on their way are sent again; servers leave out what
//      they have.
#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/optim/optimizer.h>

#include "isochron/core/error.h"
#include "isochron/engine/async/async_job.h"
#include "isochron/engine/async/peers.h"
#include "isochron/server/shard_optimizer.h"

namespace isochron {

// What a survivor tells the others.
struct Job::Async::Knowledge {
  bool trains = true;
  bool met = false;  // it was told of the meeting, whose position and so on follow
  std::int64_t met_at = 0;
  bool stopping = false;
  std::int64_t stop_signal = 0;
  WorkerId worker = 0;
  std::int64_t holds_first = 0;  // samples of its iteration that is not in the records yet; none if both are equal
  std::int64_t holds_last = 0;
  std::int64_t rounds = 0;  // with bound 0: that are over
  double pulled_at = 0.0;
  std::vector<std::int64_t> chunks;   // that it has
  std::vector<Provenance> arrivals;   // of updates that came to it
  std::vector<UpdateRecord> records;  // that it knows
  std::string learning;               // of the controller, if the coordinator was here

  Interval held() const { return {.first = holds_first, .last = holds_last}; }

  template <class Wire>
  void exchange(Wire& wire) {
    wire(trains, met, met_at, stopping, stop_signal, worker, holds_first, holds_last, rounds, pulled_at);
    wire(chunks, arrivals, records, learning);
  }
};

namespace {

bool covers(const Ledger& ledger, const Interval& positions) {
  return std::ranges::any_of(ledger.intervals(), [&](const Interval& used) {
    return used.first <= positions.first && positions.last <= used.last;
  });
}

}  // namespace

WorldOptions Job::Async::world_options() const {
  return {.timeout = options_.patience(), .watch = {}, .fence = options_.fence};
}

ProgressReport Job::Async::progress() const {
  return {.progress = 0, .self = self_, .next_id = members_.size()};
}

void Job::Async::recover(const PeerError& error) {
  warn(error.what());
  std::vector<Peer> suspects = suspects_of(error);
  while (true) {
    const std::vector<Peer> late = let_go();
    suspects.insert(suspects.end(), late.begin(), late.end());
    const Settlement settlement = membership_->recover(*this, std::exchange(suspects, {}));
    try {
      take_up(settlement);
      return;
    } catch (const PeerError& another) {
      warn(another.what());
      suspects = suspects_of(another);
    }
  }
}

// Returns those whom the coordinator has waited for in vain.
std::vector<Peer> Job::Async::let_go() {
  std::vector<Peer> late;
  if (channel_) {
    channel_->fail();
  }
  if (client_) {
    client_->abandon();
  }
  if (server_) {
    server_->stop();
    if (const std::exception_ptr failure = server_->failure()) {
      try {
        std::rethrow_exception(failure);
      } catch (const PeerError& error) {  // anything else is no failure of a peer
        late = suspects_of(error);
      }
    }
    kept_ = std::move(server_->chunks());
    kept_arrivals_ = server_->arrivals();
    server_.reset();
  }
  if (coordinator_) {
    kept_records_.assign(known_records_.begin(), known_records_.begin() + known_to_coordinator_);
    std::ranges::copy(coordinator_->records(), std::back_inserter(kept_records_));
    kept_learning_ = coordinator_->dispatcher().controller().state().serialize();
    rounds_ = in_rounds() ? coordinator_->dispatcher().clocks().slowest() : 0;
    coordinator_.reset();
  }
  return late;
}

Job::Async::Knowledge Job::Async::knowledge() {
  Knowledge mine{.trains = trains_, .worker = my_id(), .rounds = rounds_, .pulled_at = pulled_at_};
  mine.met = phase_ == Phase::kMeeting || order_.barrier;
  mine.met_at = order_.last;
  mine.stopping = order_.stopping || stopping_;
  mine.stop_signal = std::max(order_.stop_signal, stop_signal_);
  if (!in_rounds() && has_update()) {
    mine.holds_first = order_.first;
    mine.holds_last = order_.last;
  }
  for (const auto& [number, chunk] : kept_) {
    mine.chunks.push_back(number);
    mine.rounds = std::max(mine.rounds, chunk.ledger().rounds());
  }
  mine.arrivals = kept_arrivals_;
  mine.records = kept_records_.size() > known_records_.size() ? kept_records_ : known_records_;
  mine.learning = kept_learning_;
  return mine;
}

void Job::Async::take_up(const Settlement& settlement) {
  std::vector<Knowledge> all;
  for (const std::string& bytes : all_gather(membership_->group(), encode(knowledge()))) {
    all.push_back(decode<Knowledge>(bytes));
  }
  change_members(settlement, all);
  Controller controller = controller_of_survivors(all);
  if (!client_) {  // nothing is under way before the first loader
    controller_ = std::move(controller);
    return;
  }
  settle_rounds(all);
  learn_what_was_used(all);
  const std::vector<int> server_of = share_out_lost_chunks(all);
  const auto met = std::ranges::find_if(all, &Knowledge::met);
  channel_.emplace(membership_->comm(), options_.patience());
  start_serving(std::exchange(kept_, {}), std::move(controller), met == all.end() ? claims_left(all) : ClaimPool());
  if (server_) {
    server_->take_over(std::exchange(kept_arrivals_, {}));
  }
  kept_records_.clear();
  kept_learning_.clear();
  if (met == all.end()) {
    open_coordinator();
  }
  if (server_) {
    server_->resume();
  }
  client_->move_to(*channel_, server_of, server_peers());
  if (met != all.end()) {
    Assignment barrier{.barrier = true, .last = met->met_at};
    barrier.stopping = met->stopping;
    barrier.stop_signal = met->stop_signal;
    meet(barrier);
    if (coordinator_) {
      coordinator_->dispatcher().begin(ClaimPool(place_.position));
    }
  }
}

void Job::Async::change_members(const Settlement& settlement, const std::vector<Knowledge>& all) {
  for (const Worker& lost : missing(members_, settlement.workers)) {
    tell("death", lost.id, lost.name);
  }
  members_ = settlement.workers;
  workers_ = static_cast<int>(std::ranges::count_if(all, &Knowledge::trains));
  options_.async.servers = size() - workers_;
  if (workers_ == 0) {
    throw Error("all workers are lost; the servers alone have nothing to do");
  }
  peers_ = gather_peers(membership_->group());
}

Controller Job::Async::controller_of_survivors(const std::vector<Knowledge>& all) const {
  Controller controller = make_controller(options_, roster_.empty() ? controller_.roster().workers : roster_);
  for (const Knowledge& one : all) {
    if (!one.learning.empty()) {
      controller.restore(State::parse(one.learning));
      break;
    }
  }
  controller.change_workers({members_.begin(), members_.begin() + workers_});
  return controller;
}

// A round is over for all if somebody knows so: then every server has every update of it, since orders for the next one
// are given no earlier, and applies it if it has not yet. Otherwise no server has applied any of it.
void Job::Async::settle_rounds(const std::vector<Knowledge>& all) {
  if (!in_rounds()) {
    return;
  }
  rounds_ = std::ranges::max(all, {}, &Knowledge::rounds).rounds;
  for (auto& [number, chunk] : kept_) {
    chunk.finish_rounds(rounds_);
    chunk.ledger().restart_round();
  }
  std::erase_if(kept_arrivals_, [this](const Provenance& from) { return from.round >= rounds_; });
  if (!has_update() || order_.iteration < rounds_) {
    return;
  }
  if (phase_ == Phase::kPushing) {
    client_->forget_push();
    ++iterations_;
  } else {
    samples_ -= report_.batch;
  }
  report_ = {};
  phase_ = Phase::kFree;
}

// Records that somebody has, and updates that came to a server without a record, since the coordinator is lost.
void Job::Async::learn_what_was_used(const std::vector<Knowledge>& all) {
  const auto most = std::ranges::max_element(all, {}, [](const Knowledge& one) { return one.records.size(); });
  for (std::size_t number = known_records_.size(); number < most->records.size(); ++number) {
    take_record(most->records[number]);
  }
  const auto is_held = [&](const Interval& positions) {
    return std::ranges::any_of(all, [&](const Knowledge& one) { return one.held() == positions; });
  };
  for (const Knowledge& one : all) {
    for (const Provenance& from : one.arrivals) {
      const bool is_over = !in_rounds() || from.round < rounds_;
      const Interval positions{.first = from.first, .last = from.last};
      if (is_over && !covers(*ledger_, positions) && !is_held(positions)) {
        UpdateRecord record{.step = next_record_, .epoch = place_.epoch, .position = positions.first};
        record.worker = {.id = from.worker, .batch = positions.size()};
        take_record(record);
      }
    }
  }
  if (phase_ == Phase::kFree && report_.finished && covers(*ledger_, {.first = order_.first, .last = order_.last})) {
    report_ = {};  // the coordinator had it
  }
}

ClaimPool Job::Async::claims_left(const std::vector<Knowledge>& all) const {
  Ledger begun = *ledger_;
  std::vector<const Knowledge*> at_work;
  for (const Knowledge& one : all) {
    if (one.held().size() > 0 && !covers(*ledger_, one.held())) {
      begun.stage({.positions = one.held(), .worker = one.worker});
      at_work.push_back(&one);
    }
  }
  begun.commit();
  const std::vector<Interval> intervals = begun.intervals();
  const std::int64_t reached = intervals.empty() ? place_.position : intervals.back().last;
  ClaimPool pool(reached);
  for (const Interval& gap : begun.gaps()) {
    if (gap.first < reached) {
      pool.give_back(gap);
    }
  }
  for (const Knowledge* one : at_work) {
    pool.hold(one->worker, one->held());
  }
  return pool;
}

// By chunk: the server that has it from now on.
std::vector<int> Job::Async::share_out_lost_chunks(const std::vector<Knowledge>& all) {
  const server::Layout& layout = client_->layout();
  std::vector<int> server_of(layout.chunks.size(), -1);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const std::int64_t chunk : all[rank].chunks) {
      server_of[static_cast<std::size_t>(chunk)] = static_cast<int>(rank) - first_server();
    }
  }
  const auto freshest = std::ranges::max_element(all, {}, &Knowledge::pulled_at);
  const int root = static_cast<int>(freshest - all.begin());
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < server_of.size(); ++i) {
    if (server_of[i] >= 0) {
      continue;
    }
    server_of[i] = static_cast<int>(lost++ % server_count());
    const at::Tensor values = layout.chunk_of(client_->values(), i).clone();
    c10d::BroadcastOptions from;
    from.rootRank = root;
    std::vector<at::Tensor> tensors{values};
    membership_->group()->broadcast(tensors, from)->wait();
    if (first_server() + server_of[i] == rank()) {
      kept_.emplace(static_cast<std::int64_t>(i), serve(layout, i, values)).first->second.ledger().begin_at(rounds_);
    }
  }
  if (lost > 0) {
    warn(
        std::to_string(lost) + " of " + std::to_string(server_of.size()) +
        " chunks of the parameters are lost; they go on as " + members_[static_cast<std::size_t>(root)].name +
        " pulled them last, and what the optimizer had learned of them starts anew");
  }
  client_->forget_sent();
  for (auto& [number, chunk] : kept_) {
    chunk.ledger().forget_updates();
  }
  return server_of;
}

}  // namespace isochron
