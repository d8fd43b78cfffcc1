#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/core/error.h"
#include "isochron/core/replica/progress.h"
#include "isochron/core/replica/saved_replica.h"
#include "isochron/engine/async/async_job.h"
#include "isochron/engine/async/shard_state.h"
#include "isochron/engine/checkpoint_transfer.h"
#include "isochron/engine/model_state.h"

namespace isochron {
namespace {

// The text of the one rank that has some.
std::string gather_the_one(const Group& group, const std::string& mine) {
  for (const std::string& text : all_gather(group, mine)) {
    if (!text.empty()) {
      return text;
    }
  }
  return {};
}

}  // namespace

void Job::Async::save(const std::filesystem::path& path) {
  require(model_ != nullptr, "save() before prepare()");
  require(phase() == Phase::kBarrier, "save() in the middle of a loader; permitted in asynchronous modes: between two");
  while (true) {
    std::string failure;
    std::optional<PeerLostError> lost;
    try {
      failure = write(path);
    } catch (const PeerError& error) {
      lost.emplace(error.what(), suspects_of(error));
    }
    if (membership_->agree(!lost)) {
      if (!failure.empty()) {
        throw Error(failure);
      }
      return;
    }
    recover(lost.value_or(PeerLostError("another worker could not save", {})));
  }
}

// Collective; what kept the first worker from writing, if anything did.
std::string Job::Async::write(const std::filesystem::path& path) {
  if (session_) {
    gather_optimizer_state(
        membership_->group(), members().first_server(), client_->layout(), session_->chunks(), *optimizer_);
  }
  const State rest = saved().to_state();
  return write_on_first(path, membership_->group(), [&] { return pack_job(rest, *model_, *optimizer_); });
}

// The servers begin with what is restored here, so it is too late once they have begun.
void Job::Async::restore(const std::filesystem::path& path) {
  require(model_ != nullptr, "restore() before prepare()");
  require(dataset_ == nullptr, "restore() after loader()");
  const SavedReplica saved = SavedReplica::from_state(
      unpack_job(read_everywhere(path, membership_->group()), path.string(), *model_, *optimizer_));
  saved.check_options(this->saved());
  (void)saved.give_ids(members_);
  self_ = members_[static_cast<std::size_t>(rank())];
  std::vector<Worker> now(members_.begin(), members_.begin() + workers_);
  controller_ = Controller(
      Roster{.workers = saved.roster, .global_batch = options_.global_batch},
      {.policy = options_.policy, .rate = options_.rate});
  controller_.restore(saved.controller);
  if (!same_workers(controller_.roster().workers, now)) {
    controller_.change_workers(std::move(now));
  }
  resumed_ = saved.place;
  if (resumed_) {
    place_.epoch = resumed_->epoch;
    place_.position = resumed_->position;
  }
  if (saved.record) {
    record_.step = saved.record->step;
    place_.next_record = record_.step + 1;
  }
}

// Collective.
SavedReplica Job::Async::saved() {
  const std::string learned = gather_the_one(
      membership_->group(),
      session_ && session_->coordinates() ? session_->controller().state().serialize() : std::string());
  SavedReplica saved;
  saved.options = option_texts(options_, kCheckpointed);
  saved.roster.assign(members_.begin(), members_.begin() + workers_);
  saved.next_id = members_.size();
  saved.controller =
      learned.empty() ? (session_ ? session_->controller() : controller_).state() : State::parse(learned);
  const server::DataPosition at = place();
  if (dataset_) {
    saved.place = {.dataset_size = dataset_->size(), .epoch = at.epoch, .position = at.position, .ledger = at.ledger};
  }
  if (at.next_record > 0) {
    saved.record = StepRecord{.step = at.next_record - 1};  // the number of the last update is all that counts
  }
  return saved;
}

}  // namespace isochron
