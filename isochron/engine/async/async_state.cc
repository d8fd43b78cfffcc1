#include <stdexcept>

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
std::string the_only(const Group& group, const std::string& mine) {
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
  require(phase_ == Phase::kMeeting, "save() in the middle of a loader; permitted in asynchronous modes: between two");
  if (client_) {
    gather_optimizer_state(
        membership_->group(), first_server(), client_->layout(), server_ ? &server_->chunks() : nullptr, *optimizer_);
  }
  const State rest = saved().to_state();
  const std::string failure =
      write_on_first(path, membership_->group(), [&] { return pack_job(rest, *model_, *optimizer_); });
  if (!failure.empty()) {
    throw Error(failure);
  }
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
  controller_ = make_controller(options_, saved.roster);
  controller_.restore(saved.controller);
  if (!same_workers(controller_.roster().workers, now)) {
    controller_.change_workers(std::move(now));
  }
  decision_ = controller_.decision();
  resumed_ = saved.place;
  if (resumed_) {
    place_ = {.seed = options_.seed, .epoch = resumed_->epoch, .position = resumed_->position};
  }
  if (saved.record) {
    record_.step = saved.record->step;
    next_record_ = record_.step + 1;
  }
}

// Collective.
SavedReplica Job::Async::saved() {
  const std::string learned =
      the_only(membership_->group(), coordinator_ ? controller().state().serialize() : std::string());
  SavedReplica saved;
  saved.options = option_texts(options_, kCheckpointed);
  saved.roster.assign(members_.begin(), members_.begin() + workers_);
  saved.next_id = members_.size();
  saved.controller = learned.empty() ? controller_.state() : State::parse(learned);
  if (ledger_) {
    saved.place = {
        .dataset_size = dataset_->size(), .epoch = place_.epoch, .position = place_.position, .ledger = *ledger_};
  }
  if (next_record_ > 0) {
    saved.record = StepRecord{.step = next_record_ - 1};  // the number of the last update is all that counts
  }
  return saved;
}

}  // namespace isochron
