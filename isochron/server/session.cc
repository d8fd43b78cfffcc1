#include "isochron/server/session.h"

#include <algorithm>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::server {

Session::Session(SessionOptions options, Members members, DataPosition place, SessionOwner& owner)
    : options_(std::move(options)), members_(std::move(members)), place_(std::move(place)), owner_(owner) {
  order_.first = place_.position;
}

Session::~Session() {
  close(false);
}

double Session::seconds_since_start(Clock::time_point moment) const {
  return std::chrono::duration<double>(moment - began_).count();
}

Controller Session::make_controller(std::vector<Worker> workers) const {
  return {Roster{.workers = std::move(workers), .global_batch = options_.global_batch}, options_.controller};
}

void Session::begin(
    std::shared_ptr<Link> link,
    ParameterLayout layout,
    std::vector<Space> values,
    ParameterServer::Chunks chunks,
    Controller learned) {
  link_ = std::move(link);
  start_serving(std::move(chunks), std::move(learned), ClaimPool(place_.position));
  client_.emplace(*link_, std::move(layout), members_.first_server(), std::move(values));
}

void Session::start_serving(ParameterServer::Chunks chunks, Controller controller, ClaimPool claims) {
  roster_ = controller.roster().workers;
  order_.decision = controller.decision();
  known_to_coordinator_ = std::ssize(known_records_);
  if (members_.rank == members_.first_server()) {
    std::vector<std::optional<WorkerId>> workers(members_.workers.size());
    for (std::size_t rank = 0; std::cmp_less(rank, members_.trainers); ++rank) {
      workers[rank] = members_.workers[rank].id;
    }
    coordinator_ = std::make_unique<Coordinator>(
        Dispatcher(std::move(controller), options_.bound, std::move(claims), rounds_), workers);
  } else {
    controller_ = std::move(controller);
  }
  if (coordinator_ || !chunks.empty()) {
    server_.emplace(*link_, std::move(chunks), coordinator_.get());
    owner_.start(*server_);
  }
}

Controller& Session::controller() {
  return coordinator_ ? coordinator_->dispatcher().controller() : controller_.value();
}

// While the server pauses, so that no report can have come yet.
void Session::open_coordinator() {
  if (coordinator_) {
    const auto early = coordinator_->open(place_.epoch, end_, place_.next_record);
    ISO_CHECK(early.empty(), "a report came before the coordinator had opened");
  }
}

void Session::enter(std::int64_t end) {
  if (place_.position == 0) {
    place_.ledger = Ledger(place_.samples_per_epoch);
  }
  end_ = end;
  known_records_.clear();
  known_to_coordinator_ = 0;
  open_coordinator();
  if (server_) {
    server_->resume();
  }
  samples_ = 0;
  const Decision decision = order_.decision;
  order_ = {};
  order_.first = place_.position;
  order_.decision = decision;
  report_ = {};
  phase_ = Phase::kFree;
}

const Assignment& Session::next(std::int64_t stop) {
  report_.stop = stop;
  report_.sequence = next_report_;
  asked_ = Clock::now();
  const int coordinator = members_.first_server();
  link_->tell(coordinator, kReportTag, encode(report_));
  const auto assignment = decode<Assignment>(link_->await_message(coordinator, "asking for work"));
  ++next_report_;
  report_ = {};
  order_ = assignment;
  rounds_ = in_rounds() ? assignment.iteration : 0;
  started_ = Clock::now();
  std::ranges::for_each(assignment.records, [this](const UpdateRecord& record) { take_record(record); });
  if (!assignment.non_finite.empty()) {
    const NonFiniteError error(assignment.non_finite);
    if (link_->tells_others()) {  // who hears of our end first would take us for lost
      link_->fail(failure_of(error));
    }
    throw NonFiniteError(error);
  }
  return order_;
}

void Session::take_record(const UpdateRecord& record) {
  const WorkerStep& worker = record.worker;
  place_.ledger.stage(
      {.positions = {.first = record.position, .last = record.position + worker.batch}, .worker = worker.id});
  place_.ledger.commit();
  place_.next_record = record.step + 1;
  known_records_.push_back(record);
  if (worker.id == members_.self().id) {
    last_update_ = record;
  }
  owner_.take_record(record);
}

void Session::start_pull() {
  client_->start_pull({.worker = members_.self().id, .iteration = iterations_, .rounds = rounds_});
}

void Session::finish_pull() {
  client_->finish_pull();
  ready_ = Clock::now();
  pulled_at_ = seconds_since_start(ready_);
  if (!order_.barrier && phase_ == Phase::kFree) {
    phase_ = Phase::kComputing;
  }
}

void Session::computed() {
  report_.compute_seconds = std::chrono::duration<double>(Clock::now() - ready_).count();
  report_.warm = known_sizes_.add(order_.batch());
}

PushHeader Session::header() const {
  return {
      .from =
          {.worker = members_.self().id,
           .iteration = iterations_,
           .round = order_.iteration,
           .epoch = place_.epoch,
           .first = order_.first,
           .last = order_.last},
      .round_samples = order_.round_samples};
}

void Session::begin_push(double weight, const std::vector<ParameterClient::StripRate>& strips) {
  PushRate by_batch = options_.push_rate;
  by_batch.by_staleness = false;  // the servers know it
  report_.rate_factor =
      order_.decision.learning_rate_factor *
      (in_rounds() ? 1.0 : push_factor(by_batch, order_.batch(), options_.global_batch, members_.trainers, 0));
  PushHeader push = header();
  push.weight = weight;
  push.rate = report_.rate_factor;
  client_->begin_push(push, strips);
  phase_ = Phase::kPushing;
}

void Session::finish() {
  if (phase_ == Phase::kComputing) {
    PushHeader nothing = header();
    nothing.skipped = true;
    phase_ = Phase::kPushing;
    client_->begin_push(nothing, {});
  }
  report_.staleness = client_->finish_push().staleness;
  const auto now = Clock::now();
  report_.finished = true;
  report_.batch = order_.batch();
  report_.start = seconds_since_start(started_);
  report_.seconds = std::chrono::duration<double>(now - started_).count();
  report_.waited = std::chrono::duration<double>(started_ - asked_).count();
  samples_ += report_.batch;
  ++iterations_;
  phase_ = Phase::kFree;
}

// All hold nothing, and the servers have applied everything. Either all have reached the barrier, or nobody has.
void Session::reach_barrier() {
  std::exception_ptr failure;
  try {
    come_together();
  } catch (const PeerError&) {
    failure = std::current_exception();
  }
  if (!owner_.agree(failure == nullptr)) {
    if (failure) {
      std::rethrow_exception(failure);
    }
    throw PeerLostError("a worker was lost at a barrier", {});
  }
  if (server_) {
    server_->forget_arrivals();
  }
  if (phase_ == Phase::kBarrier) {  // the second time, because somebody was lost
    return;
  }
  place_.position = order_.last;
  if (place_.position == place_.samples_per_epoch) {
    ISO_CHECK(place_.ledger.complete(), "an epoch used some sample twice or not at all");
    ++place_.epoch;
    place_.position = 0;
  }
  phase_ = Phase::kBarrier;
}

void Session::come_together() {
  start_pull();
  finish_pull();
  (void)owner_.gather({});  // all have pulled
  if (server_) {
    server_->pause();
  }
  owner_.average(samples_);
  check_counts();
}

void Session::check_counts() {
  const UpdateCounts mine{.sent = client_->sent(), .applied = server_ ? server_->applied() : 0};
  counts_ = {};
  for (const std::string& bytes : owner_.gather(encode(mine))) {
    const auto told = decode<UpdateCounts>(bytes);
    counts_.sent += told.sent;
    counts_.applied += told.applied;
  }
  ISO_CHECK(
      counts_.sent == counts_.applied,
      "of " + std::to_string(counts_.sent) + " chunks of gradients " + std::to_string(counts_.applied) +
          " were applied");
}

void Session::fail(const std::exception& error) {
  if (link_) {
    link_->fail(failure_of(error));
  }
}

void Session::close(bool orderly) {
  if (!link_) {
    return;
  }
  if (server_) {
    server_->stop();
  }
  if (orderly && coordinator_ && link_->tells_others()) {
    coordinator_->leave(members_.rank);
    if (!coordinator_->missing().empty()) {
      const Peer& self = link_->peer(members_.rank);
      const std::string words = " closed the job in the middle of an epoch, in which others wait for it";
      link_->fail(failure_of(PeerLostError(name_of(self) + words, {self})));
    }
  }
  client_.reset();
  server_.reset();
  if (coordinator_) {
    controller_ = std::move(coordinator_->dispatcher().controller());
  }
  coordinator_.reset();
  link_->leave(orderly);
  link_.reset();
  phase_ = Phase::kBarrier;
}

}  // namespace isochron::server
