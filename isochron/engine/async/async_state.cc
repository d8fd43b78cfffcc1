#include <stdexcept>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/core/error.h"
#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/engine/async/async_job.h"
#include "isochron/engine/async/shard_state.h"
#include "isochron/io/run_log_reader.h"

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
        membership_->group(), first_server(), client_->layout(), server_ ? &server_->pieces() : nullptr, *optimizer_);
  }
  SavedJob job = saved();
  std::string failure;
  if (is_first()) {
    try {
      write_checkpoint(path, pack(std::move(job), *model_, *optimizer_));
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  failure = broadcast(membership_->group(), failure);
  if (!failure.empty()) {
    throw Error(failure);
  }
}

// The servers begin with what is restored here, so it is too late once they have begun.
void Job::Async::restore(const std::filesystem::path& path) {
  require(model_ != nullptr, "restore() before prepare()");
  require(dataset_ == nullptr, "restore() after loader()");
  resumed_.emplace(unpack(read_everywhere(path, membership_->group()), path.string(), *model_, *optimizer_));
  resumed_->check_options(options_);
  WorkerId next_id = 0;
  resumed_->give_ids(members_, next_id);
  self_ = members_[static_cast<std::size_t>(rank())];
  std::vector<Worker> now(members_.begin(), members_.begin() + workers_);
  controller_ = resumed_->restored_controller(options_);
  if (!same_workers(controller_.roster().workers, now)) {
    controller_.change_workers(std::move(now));
  }
  decision_ = controller_.decision();
  place_ = {.seed = options_.seed, .epoch = resumed_->sampler.epoch, .position = resumed_->sampler.position};
  if (!resumed_->record.empty()) {
    const io::RunLogLine last = io::parse_run_log_line(resumed_->record);
    if (const auto* const update = std::get_if<UpdateRecord>(&last)) {
      record_ = *update;
    } else {
      record_.step = std::get<StepRecord>(last).step;  // the run was synchronous until now
    }
    next_record_ = record_.step + 1;
  }
}

void Job::Async::follow(const SavedJob& saved) {
  saved.check_dataset(dataset_->size());
  sampler_->restore({options_.seed, saved.sampler.epoch, saved.sampler.position});
  place_ = sampler_->state();
  ledger_.emplace(sampler_->samples_per_epoch());
  restore_state(*ledger_, saved.ledger);
}

// Collective.
SavedJob Job::Async::saved() {
  const std::string learned =
      the_only(membership_->group(), coordinator_ ? controller().state().serialize() : std::string());
  UpdateRecord last = record_;  // the number of the last one counts
  last.step = next_record_ - 1;
  return {
      .global_batch = options_.global_batch,
      .seed = std::to_string(options_.seed),
      .last_batch = options_.last_batch == LastBatch::kKeep ? "keep" : "drop",
      .policy = options_.policy,
      .roster = std::vector<Worker>(members_.begin(), members_.begin() + workers_),
      .next_id = members_.size(),
      .dataset_size = dataset_ ? dataset_->size() : 0,
      .sampler = place_,
      .ledger = ledger_ ? save_state(*ledger_) : State{},
      .controller = learned.empty() ? controller_.state() : State::parse(learned),
      .ceilings =
          [] {
            MemoryCeilings none;
            return save_state(none);
          }(),
      .record = next_record_ > 0 ? to_json(last) : std::string()};
}

}  // namespace isochron
