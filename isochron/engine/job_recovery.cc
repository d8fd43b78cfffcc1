#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>

#include "isochron/core/error.h"
#include "isochron/engine/agreement.h"
#include "isochron/engine/job_impl.h"
#include "isochron/engine/out_of_memory.h"
#include "isochron/io/run_log_reader.h"

namespace isochron {

WorldOptions Job::Impl::world_options() {
  WorldOptions world{.timeout = options_.patience(), .fence = options_.fence};
  world.watch.patience = [this] { return std::chrono::milliseconds(patience_ms_); };
  world.watch.tell = [this](const std::vector<Peer>& suspects, std::chrono::milliseconds waited) {
    for (const Peer& peer : suspects) {
      warn(
          "rank " + std::to_string(peer.rank) + " on " + peer.host + " (process " + std::to_string(peer.process) +
          ") has kept the others waiting for " + std::to_string(waited.count()) + " ms");
    }
  };
  return world;
}

bool Job::Impl::attempt(const std::function<bool()>& compute) {
  try {
    return compute();
  } catch (const PeerError& error) {
    warn(error.what());
    recover(suspects_of(error));
  } catch (const NumbersError&) {
    throw;
  } catch (const std::exception&) {
    give_up_step(std::current_exception());
  }
  return false;
}

void Job::Impl::give_up_step(const std::exception_ptr& error) {
  if (!is_out_of_memory(error) || phase_ != Phase::kComputing) {
    std::rethrow_exception(error);
  }
  failed_batch_ = micro_batch_ > 0 ? std::min(my_batch(), micro_batch_) : my_batch();
  if (failed_batch_ <= 1) {
    std::rethrow_exception(error);  // there is nothing smaller
  }
  recover({});
}

bool Job::Impl::try_together(const std::function<void()>& exchange) {
  bool worked = true;
  std::vector<Peer> suspects;
  try {
    exchange();
  } catch (const PeerError& error) {
    worked = false;
    suspects = suspects_of(error);
    warn(error.what());
  }
  if (membership_->agree(worked)) {
    return true;
  }
  recover(suspects);
  return false;
}

void Job::Impl::recover(const std::vector<Peer>& suspects) {
  for (const Peer& peer : suspects) {
    warn("rank " + std::to_string(peer.rank) + " on " + peer.host + " does not answer and is put out of the job");
    evicted_.push_back(members_[static_cast<std::size_t>(peer.rank)].id);
  }
  let_go();
  const Settlement settlement = membership_->recover(*this, suspects);
  take_up(settlement);
}

// Of everything that is built on the group.
void Job::Impl::let_go() {
  if (phase_ == Phase::kComputing) {
    undo_step();
  }
  if (rate_) {
    rate_->restore();
  }
  exchange_.reset();
  norm_scope_.reset();
  parallel_.reset();
  norms_.reset();
  if (failed_batch_ > 0) {
    release_cached_memory();
  }
}

void Job::Impl::undo_step() {
  buffers_->restore();
  for (const at::Tensor& parameter : model_->parameters()) {
    at::Tensor(parameter).mutable_grad().reset();  // some may be half reduced
  }
  if (rate_) {
    rate_->restore();
  }
  norm_scope_.reset();
  phase_ = Phase::kBetween;
}

Standing Job::Impl::standing() const {
  return {
      .progress = admission_ ? Standing::kNothing : 2 * step() + (phase_ == Phase::kComputed ? 1 : 0),
      .self = self_,
      .failed_batch = failed_batch_,
      .chunkable = in_pieces_ && may_compute_in_pieces_,
      .next_id = next_id_,
      .evicted = evicted_,
      .clock = now()};
}

void Job::Impl::finish_unreported() {
  record_ = make_unreported_record(slices_, workers(), controller_.decision(), sampler_->state(), now());
  phase_ = Phase::kBetween;
  note_samples();
  moments_known_ = false;
  diagnosing_ = false;
  controller_.observe({.step = step()});
  if (options_.on_step) {
    options_.on_step(record_);
  }
}

Checkpoint Job::Impl::state() {
  return pack(saved(), *model_, *optimizer_);
}

void Job::Impl::take_over(const Checkpoint& state) {
  const SavedJob job = unpack(state, "the state of another worker", *model_, *optimizer_);
  follow(job);
  restore_policy(job);
  next_id_ = job.next_id;
  phase_ = Phase::kBetween;
  moments_known_ = false;
  diagnosing_ = false;
  if (admission_) {
    return;
  }
  record_ = std::get<StepRecord>(io::parse_run_log_line(job.record));
  if (options_.on_step) {
    options_.on_step(record_);
  }
}

// Local: all have the same state now, and a group that works.
void Job::Impl::take_up(const Settlement& settlement) {
  if (admission_) {  // the times that workers report are compared, so a newcomer's clock begins with the job's
    const auto clock = [&settlement](int of) { return settlement.clocks[static_cast<std::size_t>(of)]; };
    began_ -= std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(clock(settlement.leader) - clock(rank())));
    admission_.reset();
  }
  for (const Worker& worker : missing(workers(), settlement.workers)) {
    const bool evicted = std::ranges::find(settlement.evicted, worker.id) != settlement.evicted.end();
    tell(evicted ? "evicted" : "death", worker.id, worker.name);
    ceilings_.forget(worker.id);
  }
  for (const Worker& worker : settlement.joined) {
    tell("join", worker.id, worker.name);
  }
  for (const OutOfMemory& failure : settlement.out_of_memory) {
    tell("out-of-memory", failure.worker, "with " + std::to_string(failure.batch) + " samples");
    ceilings_.failed(failure.worker, failure.batch, step());
  }
  members_ = settlement.workers;
  self_ = members_[static_cast<std::size_t>(rank())];
  next_id_ = settlement.next_id;
  change_workers(settlement);
  failed_batch_ = 0;
  newcomer_due_ = false;
  evicted_.clear();
  if (model_ != nullptr) {
    build_on_group(Start::kAsIs);
  }
}

std::vector<Worker> Job::Impl::with_ceilings(std::vector<Worker> members) const {
  for (Worker& worker : members) {
    worker.max_batch = ceilings_.limit(worker.id, std::max<std::int64_t>(worker.min_batch, 1), worker.max_batch);
  }
  return members;
}

void Job::Impl::restore_policy(const SavedJob& job) {
  restore_state(ceilings_, job.ceilings);
  controller_ = job.restored_controller(options_);
}

void Job::Impl::fit_to_members() {
  if (std::vector<Worker> now = with_ceilings(members_); !same_workers(workers(), now)) {
    controller_.change_workers(std::move(now));
  }
}

void Job::Impl::change_workers(const Settlement& settlement) {
  const auto trouble_of_fitting = [this]() -> std::string {
    try {
      fit_to_members();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  std::string trouble = trouble_of_fitting();
  if (!trouble.empty() && change_to_pieces(settlement)) {
    trouble = trouble_of_fitting();
  }
  if (!trouble.empty() && ceilings_.give_up(step())) {
    trouble = trouble_of_fitting();
  }
  if (!trouble.empty()) {
    throw Error(
        "step " + std::to_string(step()) + ": the workers that are left cannot take the global batch (" + trouble +
        ")");
  }
}

bool Job::Impl::change_to_pieces(const Settlement& settlement) {
  const auto& failures = settlement.out_of_memory;
  if (failures.empty() || !std::ranges::all_of(failures, &OutOfMemory::chunkable)) {
    return false;
  }
  for (const OutOfMemory& failure : failures) {
    if (failure.worker == self_.id) {
      micro_batch_ = ceilings_.limit(self_.id, 1, self_.max_batch);
      warn("computes its batches in pieces of " + std::to_string(micro_batch_) + " samples from now on");
    }
    ceilings_.forget(failure.worker);
  }
  return true;
}

bool Job::Impl::join() {
  let_go();
  const auto settlement = membership_->join(*admission_, *this, introduction(options_));
  if (!settlement) {
    stopping_ = true;
    return false;
  }
  take_up(*settlement);
  loop_epoch_ = sampler_->state().epoch;
  return true;
}

void Job::Impl::admit() {
  let_go();
  try {
    take_up(membership_->admit(*this));
  } catch (const PeerError& error) {
    take_up(membership_->recover(*this, suspects_of(error)));
  }
}

void Job::Impl::tell(const std::string& event, WorkerId worker, const std::string& words) {
  if (options_.on_event) {
    options_.on_event({.step = step(), .seconds = now(), .event = event, .worker = worker, .words = words});
  }
}

void Job::Impl::warn(const std::string& words) const {
  if (options_.warn) {
    options_.warn(words);
  }
}

// All workers have the same averages, so all are here.
bool Job::Impl::handle_numbers() {
  phase_ = Phase::kComputing;  // these gradients will not be used
  const std::vector<Report> reports = exchange_->wait();
  exchange_.reset();
  std::string culprits;
  std::optional<WorkerId> first;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (!std::isfinite(reports[rank].loss) || reports[rank].finite == 0) {
      culprits += (culprits.empty() ? " on " : ", ") + workers()[rank].name + " (rank " + std::to_string(rank) +
                  ", loss " + std::to_string(reports[rank].loss) + ")";
      first = first.value_or(workers()[rank].id);
    }
  }
  const std::string words = "step " + std::to_string(step()) + ": the gradient is not finite" + culprits;
  if (culprits.empty() && !diagnosing_) {
    diagnosing_ = true;  // the step is computed again, and everybody looks at its own part
    undo_step();
    return false;
  }
  undo_step();
  if (options_.on_nonfinite == OnNonFinite::kStop) {
    throw NumbersError(words);
  }
  if (options_.on_nonfinite == OnNonFinite::kRollBack && rolled_back_for_ != step()) {
    roll_back(words);
    return false;
  }
  warn(words + "; the step is left out");
  tell("numbers", first.value_or(0), words);
  complete_step(reports);
  return false;
}

void Job::Impl::roll_back(const std::string& words) {
  if (last_saved_.empty()) {
    throw NumbersError(words + ", and there is no checkpoint to go back to");
  }
  warn(words + "; back to " + last_saved_.string());
  const std::int64_t failed = step();
  const Checkpoint checkpoint = read_everywhere(last_saved_, membership_->group());
  const SavedJob job = unpack(checkpoint, last_saved_.string(), *model_, *optimizer_);
  follow(job);
  restore_policy(job);
  fit_to_members();
  loop_epoch_ = sampler_->state().epoch;
  rolled_back_for_ = failed;
  moments_known_ = false;
  diagnosing_ = false;
  tell("rollback", 0, words);
}

}  // namespace isochron
