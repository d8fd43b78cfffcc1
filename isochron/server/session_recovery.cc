// When a worker or a server is lost. Everybody notices, since the link fails for all, and comes here from wherever it
// was: asking for work, pulling, pushing, or at a barrier.
//
//   a) It lets go of link and servers, but keeps its chunks of the parameters and an update that is on its way.
//   b) The survivors come together and tell one another what they know: which samples were used, who is at which, which
//      updates have arrived at which server.
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

#include "isochron/core/error.h"
#include "isochron/server/session.h"

namespace isochron::server {

namespace {

bool covers(const Ledger& ledger, const Interval& positions) {
  return std::ranges::any_of(ledger.intervals(), [&](const Interval& used) {
    return used.first <= positions.first && positions.last <= used.last;
  });
}

}  // namespace

std::vector<Peer> Session::let_go() {
  std::vector<Peer> late;
  if (link_) {
    link_->fail({.kind = "PeerLostError", .text = "a worker was lost"});
  }
  if (client_) {
    client_->abandon();
  }
  if (server_) {
    server_->stop();
    if (const std::exception_ptr failure = server_->failure()) {
      try {
        std::rethrow_exception(failure);
      } catch (const TimeoutError& error) {
        late = error.peers();
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): that of the link, which brought us here
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

Knowledge Session::knowledge() const {
  Knowledge mine{.trains = members_.trains(), .worker = members_.self().id, .rounds = rounds_, .pulled_at = pulled_at_};
  mine.at_barrier = phase_ == Phase::kBarrier || order_.barrier;
  mine.barrier_position = order_.last;
  mine.stopping = order_.stopping;
  mine.stop_signal = order_.stop_signal;
  if (!in_rounds() && has_update()) {
    mine.holds_first = order_.first;
    mine.holds_last = order_.last;
  }
  for (const auto& [number, chunk] : kept_) {
    mine.chunks.push_back(number);
    mine.rounds = std::max(mine.rounds, chunk->ledger().rounds());
  }
  mine.arrivals = kept_arrivals_;
  mine.records = kept_records_.size() > known_records_.size() ? kept_records_ : known_records_;
  mine.learning = kept_learning_;
  return mine;
}

void Session::take_up(Members members, std::shared_ptr<Link> link) {
  std::vector<Knowledge> all;
  for (const std::string& bytes : owner_.gather(encode(knowledge()))) {
    all.push_back(decode<Knowledge>(bytes));
    require_possible(all.back(), std::ssize(client_->layout().chunks), place_.samples_per_epoch);
  }
  members_ = std::move(members);
  members_.trainers = static_cast<int>(std::ranges::count_if(all, &Knowledge::trains));
  if (members_.trainers == 0) {
    throw Error("all workers are lost; the servers alone have nothing to do");
  }
  Controller controller = controller_of_survivors(all);
  link_ = std::move(link);
  settle_rounds(all);
  learn_what_was_used(all);
  const std::vector<int> server_of = share_out_lost_chunks(all);
  const auto at_barrier = std::ranges::find_if(all, &Knowledge::at_barrier);
  start_serving(
      std::exchange(kept_, {}), std::move(controller), at_barrier == all.end() ? claims_left(all) : ClaimPool());
  if (server_) {
    server_->take_over(std::exchange(kept_arrivals_, {}));
  }
  kept_records_.clear();
  kept_learning_.clear();
  if (at_barrier == all.end()) {
    open_coordinator();
  }
  if (server_) {
    server_->resume();
  }
  client_->move_to(*link_, members_.first_server(), server_of);
  if (at_barrier != all.end()) {
    order_.barrier = true;
    order_.last = at_barrier->barrier_position;
    order_.stopping = at_barrier->stopping;
    order_.stop_signal = at_barrier->stop_signal;
    order_.controller = this->controller().state().serialize();
    reach_barrier();
    if (coordinator_) {
      coordinator_->dispatcher().begin(ClaimPool(place_.position));
    }
  }
}

Controller Session::controller_of_survivors(const std::vector<Knowledge>& all) const {
  Controller controller = make_controller(roster_);
  for (const Knowledge& one : all) {
    if (!one.learning.empty()) {
      controller.restore(State::parse(one.learning));
      break;
    }
  }
  controller.change_workers({members_.workers.begin(), members_.workers.begin() + members_.trainers});
  return controller;
}

// A round is over for all if somebody knows so: then every server has every update of it, since orders for the next one
// are given no earlier, and applies it if it has not yet. Otherwise no server has applied any of it.
void Session::settle_rounds(const std::vector<Knowledge>& all) {
  if (!in_rounds()) {
    return;
  }
  rounds_ = std::ranges::max(all, {}, &Knowledge::rounds).rounds;
  for (auto& [number, chunk] : kept_) {
    chunk->finish_rounds(rounds_);
    chunk->ledger().restart_round();
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
void Session::learn_what_was_used(const std::vector<Knowledge>& all) {
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
      if (is_over && !covers(place_.ledger, positions) && !is_held(positions)) {
        UpdateRecord record{.step = place_.next_record, .epoch = place_.epoch, .position = positions.first};
        record.worker = {.id = from.worker, .batch = positions.size()};
        take_record(record);
      }
    }
  }
  const Interval mine{.first = order_.first, .last = order_.last};
  if (phase_ == Phase::kFree && report_.finished && covers(place_.ledger, mine)) {
    report_ = {};  // the coordinator had it
  }
}

ClaimPool Session::claims_left(const std::vector<Knowledge>& all) const {
  Ledger begun = place_.ledger;
  std::vector<const Knowledge*> at_work;
  for (const Knowledge& one : all) {
    if (one.held().size() > 0 && !covers(place_.ledger, one.held())) {
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
std::vector<int> Session::share_out_lost_chunks(const std::vector<Knowledge>& all) {
  std::vector<int> server_of(client_->layout().chunks.size(), -1);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const std::int64_t chunk : all[rank].chunks) {
      server_of[static_cast<std::size_t>(chunk)] = static_cast<int>(rank) - members_.first_server();
    }
  }
  const auto freshest = std::ranges::max_element(all, {}, &Knowledge::pulled_at);
  const int root = static_cast<int>(freshest - all.begin());
  std::vector<std::size_t> lost;
  for (std::size_t chunk = 0; chunk < server_of.size(); ++chunk) {
    if (server_of[chunk] < 0) {
      server_of[chunk] = static_cast<int>(lost.size()) % members_.servers();
      lost.push_back(chunk);
    }
  }
  if (!lost.empty()) {
    restore_chunks(lost, server_of, root);
    owner_.warn(
        std::to_string(lost.size()) + " of " + std::to_string(server_of.size()) +
        " chunks of the parameters are lost; they go on as " + members_.workers[static_cast<std::size_t>(root)].name +
        " pulled them last, and what the optimizer had learned of them starts anew");
  }
  client_->forget_sent();
  for (auto& [number, chunk] : kept_) {
    chunk->ledger().forget_updates();
  }
  return server_of;
}

// The values go from the root, which pulled them last, to those who serve them from now on.
void Session::restore_chunks(const std::vector<std::size_t>& lost, const std::vector<int>& server_of, int root) {
  Transfers transfers;
  std::vector<std::vector<std::byte>> places(server_of.size());
  std::vector<std::size_t> mine;
  for (const std::size_t chunk : lost) {
    const int owner = members_.first_server() + server_of[chunk];
    const Space values = client_->values_of(chunk);
    if (members_.rank == root) {
      transfers.push_back(link_->send(owner, kGradientTag, values));
    }
    if (members_.rank == owner) {
      places[chunk].resize(values.size());
      transfers.push_back(link_->receive(root, kGradientTag, places[chunk]));
      mine.push_back(chunk);
    }
  }
  link_->wait(transfers, "restoring lost parameters");
  for (const std::size_t chunk : mine) {
    auto served = owner_.serve(chunk, places[chunk]);
    served->ledger().begin_at(rounds_);
    kept_.emplace(static_cast<std::int64_t>(chunk), std::move(served));
  }
}

}  // namespace isochron::server
