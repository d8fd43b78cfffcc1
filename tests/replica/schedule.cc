#include "tests/replica/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::int64_t kEpochs = 2;
constexpr std::size_t kMostWorkers = 5;
constexpr std::array kPolicies = {"uniform", "isochron", "uniform", "omnilearn"};

}  // namespace

Schedule::Schedule(std::uint64_t seed, std::int64_t limit, Sabotage sabotage)
    : random_({seed, 0x7265706c}), limit_(limit), sabotage_(sabotage) {
  options_.policy = kPolicies[below(kPolicies.size())];
  options_.seed = random_.next();
  options_.global_batch = 1 + static_cast<std::int64_t>(below(12));
  options_.last_batch = below(3) == 0 ? LastBatch::kDrop : LastBatch::kKeep;
  options_.on_nonfinite = std::array{OnNonFinite::kSkip, OnNonFinite::kRollBack}[below(2)];
  if (below(3) == 0) {
    options_.rate = {.rule = RateRule::kAdaScale, .reference_batch = 1};
  }
  if (Random rounds({seed, 0x726f756e}); rounds.below(3) == 0) {
    options_.sync = Sync::kLocal;
    options_.rounds.steps = static_cast<std::int64_t>(rounds.below(4));  // 0: chosen from what is reported
  }
  draw_data(seed);
}

void Schedule::require(bool holds, const std::string& what) {
  if (!holds) {
    throw Violation(what);
  }
}

// Draws all the same beyond the limit, so that a prefix of the faults leaves the rest of the numbers as they are.
bool Schedule::chance(std::uint64_t one_in) {
  const bool wanted = random_.below(one_in) == 0;
  return choices_++ < limit_ && wanted;
}

void Schedule::note(const std::string& what, const std::string& details) {
  ++counts_[what];
  trace_.push_back(details.empty() ? what : what + " " + details);
}

Worker Schedule::random_worker() {
  Worker worker{.kind = below(2) == 0 ? "cpu" : "cuda", .weight = static_cast<double>(below(3))};
  worker.min_batch = below(3) == 0 ? 0 : static_cast<std::int64_t>(below(2));
  if (below(3) == 0) {  // most can take all
    worker.max_batch = std::max<std::int64_t>(worker.min_batch, 1 + static_cast<std::int64_t>(below(12)));
  }
  if (granular_ && below(2) == 0) {
    worker.granularity = below(2) == 0 ? 2 : 4;  // each divides the larger ones
    worker.max_batch = std::max(worker.max_batch, worker.granularity);
  }
  worker.name = "w" + text(static_cast<std::int64_t>(below(1000)));
  return worker;
}

void Schedule::start(std::size_t count) {
  std::vector<Worker> workers(count);
  std::ranges::generate(workers, [&] { return random_worker(); });
  workers.front().max_batch = kNoLimit;  // so that they can take B in the beginning
  workers.front().granularity = 1;
  const auto least = [](std::int64_t sum, const Worker& worker) {
    return sum + worker.min_batch * worker.granularity;  // bounds are 0 or 1
  };
  if (std::accumulate(workers.begin(), workers.end(), std::int64_t{0}, least) > options_.global_batch) {
    std::ranges::for_each(workers, [](Worker& worker) { worker.min_batch = 0; });
  }
  nodes_.clear();
  for (std::size_t rank = 0; rank < count; ++rank) {
    nodes_.push_back(std::make_unique<Node>(
        Node{.replica = Replica(options_, workers, static_cast<int>(rank), {.cpu = below(2) == 0}), .model = {}}));
  }
}

void Schedule::run() {
  start(1 + below(kMostWorkers));
  for (const auto& node : nodes_) {
    open(node->replica);
  }
  const auto going = [this] {
    return !over_ && nodes_.front()->replica.epoch() < kEpochs && !nodes_.front()->replica.stopping();
  };
  std::size_t seen = 0;
  while (going()) {
    between_steps();
    if (going()) {
      step();
    }
    check_equal(/*whole=*/(trace_.size() != seen && choices_ % 3 == 0) || !going());
    seen = trace_.size();
    require(trace_.size() < 10000, "the job does not get on");
  }
  check_epochs();
}

void Schedule::between_steps() {
  now_ += 1.0;
  if (chance(20)) {
    refuse_calls_out_of_order();
  }
  if (chance(12)) {
    change_bounds();
  }
  if (chance(8)) {
    save();
  }
  if (checkpoint_ && chance(25)) {
    resume();
  }
  if (chance(30)) {
    leave_epoch_early();
  }
  if (two_ && chance(6)) {
    turn_to_other_data();
  }
  if (chance(15) && nodes_.size() < kMostWorkers) {
    const std::size_t count = 1 + below(2);
    for (std::size_t i = 0; i < count; ++i) {
      note("join");
      nodes_.push_back(
          std::make_unique<Node>(Node{.replica = Replica::newcomer(options_, random_worker()), .model = {}}));
      open(nodes_.back()->replica);
    }
    come_together();
  }
  want_stop_ = want_stop_ || chance(120);
  if (epoch_is_over()) {
    for (const auto& node : nodes_) {
      node->replica.end_epoch();
    }
  }
}

// One attempt at a step.
void Schedule::step() {
  if (epoch_is_over()) {
    return;
  }
  for (const auto& node : nodes_) {
    check_plan(node->replica, plan(node->replica));
  }
  if (fails_before_the_reports()) {
    come_together();
    return;
  }
  std::vector<StepReport> reports;
  compute(reports);
  if (std::ranges::any_of(reports, [](const StepReport& report) { return report.failed_batch > 0; })) {
    note("redo");
    std::vector<std::vector<EventRecord>> events;
    std::size_t refusals = 0;
    for (const auto& node : nodes_) {
      require(node->replica.judge(reports, true).action == StepAction::kRedo, "a step without memory is taken");
      try {
        events.push_back(node->replica.redo(reports, now_));
      } catch (const Error& error) {
        check_refusal(node->replica, error.what());
        ++refusals;
      }
    }
    over_ = refusals > 0;
    require(refusals == 0 || refusals == nodes_.size(), "some replicas go on without room for the batch");
    check_same(events, "events of a step that is dealt anew");
    return;
  }
  if (chance(20)) {
    note("death after reports");
    for (const auto& node : nodes_) {
      node->replica.abandon();
    }
    kill_some(1);
    come_together();
    return;
  }
  if (chance(12)) {
    refuse_a_flipped_digest(reports);
  }
  if (non_finite_) {
    handle_non_finite(reports);
  } else if (chance(10)) {
    lose_reports(reports);
  } else {
    finish(reports);
  }
}

// A worker dies, or memory runs out, while the others compute.
bool Schedule::fails_before_the_reports() {
  const bool death = chance(20);
  const bool lack = chance(20);
  if (!death && !lack) {
    return false;
  }
  note(death ? "death while computing" : "out of memory");
  bool smaller = death;
  for (const auto& node : nodes_) {
    if (lack && chance(2)) {
      if (node->replica.abandon_for_memory(chance(2))) {
        smaller = true;
        memory_ran_out_ = true;
        continue;
      }
    }
    node->replica.abandon();
  }
  if (death) {
    kill_some(1);
  }
  return smaller || lack;
}

void Schedule::compute(std::vector<StepReport>& reports) {
  const bool lack = chance(20);
  const bool non_finite = chance(15);
  // A gradient that is not finite is so at every attempt, whoever looks at it.
  non_finite_ = non_finite || (non_finite_ && nodes_.front()->replica.options().on_nonfinite == OnNonFinite::kSkip);
  std::vector<float> sent;
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    Replica& replica = nodes_[rank]->replica;
    StepReport measured;
    measured.start = now_;
    measured.seconds = 0.1 + random_.uniform();
    measured.waited = random_.uniform() * 0.01;
    measured.exchange = 10.0 * measured.waited;
    measured.sync_points = 1 + static_cast<std::int64_t>(below(3));
    measured.usage.cpu = random_.uniform();
    measured.usage.memory = random_.uniform();
    measured.loss = random_.normal();
    measured.stop = want_stop_ && rank == 0;
    measured.signal = measured.stop ? 15 : 0;
    measured.finite = !(non_finite_ && rank + 1 == nodes_.size() && chance(2));
    measured.out_of_memory = lack && chance(2);
    memory_ran_out_ = memory_ran_out_ || measured.out_of_memory;
    measured.chunkable = chance(2);
    const ReportNumbers numbers = encode(replica.report(measured));
    sent.insert(sent.end(), numbers.begin(), numbers.end());
    replica.measure_gradient(1.0 + random_.uniform(), random_.uniform());
  }
  reports = decode_reports(sent);
}

void Schedule::refuse_a_flipped_digest(std::vector<StepReport> reports) {
  note("flipped digest");
  const std::size_t rank = below(reports.size());
  reports[rank].digest ^= std::uint64_t{1} << below(64);
  if (reports.size() == 1) {
    return;  // nobody can tell
  }
  const std::string named = "rank " + text(rank == 0 ? 1 : static_cast<std::int64_t>(rank)) + " ";
  for (const auto& node : nodes_) {
    try {
      (void)node->replica.complete(reports, now_, now_);
      throw Violation("a foreign digest was accepted");
    } catch (const Error& error) {
      require(std::string(error.what()).find(named) != std::string::npos, "who disagrees is not named");
    }
  }
}

void Schedule::refuse_calls_out_of_order() {
  note("calls out of order");
  Replica& replica = nodes_[below(nodes_.size())]->replica;
  const State before = replica.state();
  const std::vector<StepReport> nothing(nodes_.size());
  int refused = 0;
  const auto expect_refusal = [&](const auto& call) {
    try {
      call();
    } catch (const OrderError&) {
      ++refused;
    }
  };
  expect_refusal([&] { (void)replica.report({}); });
  expect_refusal([&] { (void)replica.complete(nothing, 0, 0); });
  expect_refusal([&] { (void)replica.redo(nothing, 0); });
  expect_refusal([&] { (void)replica.leave_out(nothing, 0, 0); });
  expect_refusal([&] { replica.abandon(); });
  expect_refusal([&] { (void)replica.abandon_for_memory(false); });
  expect_refusal([&] { replica.measure_gradient(1, 1); });
  require(refused == 7, "a call between two steps was not refused");
  require(same_state(replica.state(), before), "a call that was refused changed something");
}

// Some workers have not got the average, since a peer is lost or memory ran out, some have taken the optimizer's step,
// some have all reports as well.
void Schedule::lose_reports(const std::vector<StepReport>& reports) {
  std::string details;
  std::vector<std::size_t> kinds;
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    kinds.push_back(below(4));
    details += "-oRr"[kinds.back()];
  }
  note("lost reports", details);
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    if (kinds[rank] > 0) {
      use(*nodes_[rank], /*learn=*/true);  // before any plan is replaced
    }
  }
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    Replica& replica = nodes_[rank]->replica;
    if (kinds[rank] == 0) {
      if (chance(4) && replica.abandon_for_memory(chance(2))) {
        memory_ran_out_ = true;
      } else {
        replica.abandon();
      }
    } else if (kinds[rank] >= 2) {
      (void)replica.complete(reports, now_, now_);
      if (kinds[rank] == 3 && !data().stream && !replica.stopping()) {
        (void)plan(replica);  // and is at the next step already
        replica.abandon();
      }
    }
  }
  kill_some(below(2));
  come_together();
}

void Schedule::finish(const std::vector<StepReport>& reports) {
  std::vector<StepRecord> records;
  for (const auto& node : nodes_) {
    use(*node, /*learn=*/true);
  }
  for (const auto& node : nodes_) {
    const StepVerdict verdict = node->replica.judge(reports, true);
    require(verdict.action == StepAction::kTake, "a good step is not taken: " + verdict.message);
    const StepOutcome outcome = node->replica.complete(reports, now_, now_);
    require(!want_stop_ || outcome.stop, "a stop is lost");
    require(!want_stop_ || outcome.stop_signal == 15, "the signal is lost");
    records.push_back(outcome.record);
  }
  check_same(records, "records");
  ++steps_;
}

void Schedule::handle_non_finite(const std::vector<StepReport>& reports) {
  std::vector<StepAction> actions;
  for (const auto& node : nodes_) {
    actions.push_back(node->replica.judge(reports, false).action);
  }
  check_same(actions, "verdicts");
  if (actions.front() == StepAction::kRedo) {
    note("diagnosis");
    for (const auto& node : nodes_) {
      (void)node->replica.redo(reports, now_);
    }
  } else if (actions.front() == StepAction::kRollBack && checkpoint_) {
    roll_back();
    non_finite_ = false;
  } else if (actions.front() == StepAction::kRollBack) {
    note("non-finite without a checkpoint");
    for (const auto& node : nodes_) {
      node->replica.abandon();
    }
    non_finite_ = false;
  } else {
    note("left out");
    for (const auto& node : nodes_) {
      use(*node, /*learn=*/false);  // accounted for, though the model learns nothing
    }
    for (const auto& node : nodes_) {
      const StepOutcome outcome = node->replica.leave_out(reports, now_, now_);
      require(outcome.events.size() == 1, "a step that is left out is an event");
    }
    non_finite_ = false;
    ++steps_;
  }
}

void Schedule::kill_some(std::size_t at_least) {
  for (std::size_t i = 0; i < at_least || chance(4); ++i) {
    const std::size_t rank = below(nodes_.size());
    const auto alive = std::ranges::count_if(nodes_, [](const auto& node) { return !node->lost; });
    if (alive > 1 && !nodes_[rank]->lost) {
      nodes_[rank]->lost = true;
      note("lost", text(static_cast<std::int64_t>(rank)));
      if (below(2) == 0) {  // some of the others evicted it
        for (const auto& node : nodes_) {
          if (below(2) == 0 && node->replica.joined() && rank < node->replica.members().size()) {
            node->replica.note_eviction(static_cast<int>(rank));
          }
        }
      }
    }
    if (i > 3) {
      break;
    }
  }
}

void Schedule::come_together() {
  while (!try_to_come_together()) {
  }
}

// False if another one was lost meanwhile.
bool Schedule::try_to_come_together() {
  std::erase_if(nodes_, [](const auto& node) { return node->lost; });
  if (std::ranges::none_of(nodes_, [](const auto& node) { return node->replica.joined(); })) {
    over_ = true;  // only newcomers are left, and nobody knows the job
    nodes_.resize(1);
    return true;
  }
  std::vector<ProgressReport> reports;
  for (const auto& node : nodes_) {
    reports.push_back(ProgressReport::decode(node->replica.progress(now_).encode()));
  }
  const Settlement settlement = settle(reports);
  for (const auto& node : nodes_) {
    (void)node->replica.finish_unreported(settlement, now_);
  }
  const auto leader = static_cast<std::size_t>(settlement.leader);
  const bool interrupted = chance(6);
  for (const int rank : settlement.behind) {
    if (interrupted && chance(2)) {
      continue;  // it did not get it
    }
    Node& node = *nodes_[static_cast<std::size_t>(rank)];
    node.replica.take_over(State::parse(nodes_[leader]->replica.state().serialize()));
    if (sabotage_ != Sabotage::kStaleTransfer) {
      node.model = nodes_[leader]->model;
    }
  }
  if (interrupted) {
    note("interrupted recovery");
    kill_some(below(2));
    return false;
  }
  std::vector<std::vector<EventRecord>> events;
  std::size_t refusals = 0;
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    try {
      events.push_back(nodes_[rank]->replica.adopt(settlement, static_cast<int>(rank), now_));
    } catch (const Error& error) {
      check_refusal(nodes_[rank]->replica, error.what());
      ++refusals;
    }
  }
  require(refusals == 0 || refusals == nodes_.size(), "some replicas go on without room for the batch");
  over_ = refusals > 0;
  check_same(events, "events of a recovery");
  return true;
}

void Schedule::save() {
  note("save");
  const Node& first = *nodes_.front();
  checkpoint_ = {
      .state = State::parse(first.replica.state().serialize()),
      .model = first.model,
      .data = data_,
      .present = present_};
}

void Schedule::resume() {
  const std::size_t count = 1 + below(kMostWorkers);
  note("resume", "on " + text(static_cast<std::int64_t>(count)));
  start(count);
  data_ = checkpoint_->data;
  present_ = checkpoint_->present;
  const bool before_the_data = below(2) == 0;
  for (const auto& node : nodes_) {
    if (before_the_data) {
      node->replica.restore(checkpoint_->state);
      open(node->replica);
    } else {
      open(node->replica);
      node->replica.restore(checkpoint_->state);
    }
    node->model = checkpoint_->model;
    require(!node->replica.stopping(), "a run that goes on is stopping");
  }
  non_finite_ = false;
}

void Schedule::roll_back() {
  note("roll back");
  if (present_ != checkpoint_->present) {
    for (const auto& node : nodes_) {
      node->replica.abandon();
    }
    turn_to_other_data();
  }
  data_ = checkpoint_->data;
  for (const auto& node : nodes_) {
    (void)node->replica.roll_back(checkpoint_->state, "words", now_);
    node->model = checkpoint_->model;
  }
}

void Schedule::change_bounds() {
  note("bounds");
  std::vector<BatchBounds> bounds;
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    const Worker worker = random_worker();
    bounds.push_back({.min_batch = worker.min_batch, .max_batch = worker.max_batch});
  }
  std::size_t refusals = 0;
  for (const auto& node : nodes_) {
    const State before = node->replica.state();
    try {
      node->replica.change_bounds(bounds);
    } catch (const std::invalid_argument&) {
      ++refusals;
      require(same_state(node->replica.state(), before), "bounds that were refused changed something");
    }
  }
  require(refusals == 0 || refusals == nodes_.size(), "some replicas refuse the bounds");
}

}  // namespace isochron
