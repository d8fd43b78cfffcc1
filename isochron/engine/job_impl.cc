#include "isochron/engine/job_impl.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/comm/mpi_session.h"
#include "isochron/engine/handshake.h"
#include "isochron/engine/listeners.h"
#include "isochron/engine/local/local_model.h"
#include "isochron/engine/local/local_steps.h"
#include "isochron/engine/out_of_memory.h"

namespace isochron {
namespace {

// Null unless this process was started to join a running job.
std::unique_ptr<Admission> checked_admission(const JobOptions& options) {
  validate(options);
  start_mpi();
  return Admission::take();
}

Replica make_replica(const Group& group, const JobOptions& options, bool is_newcomer) {
  const LocalOptions local{.cpu = options.device.is_cpu(), .chunk_size = options.micro_batch};
  if (is_newcomer) {
    return Replica::newcomer(JobSettings(options), introduce(options).worker, local);
  }
  return {JobSettings(options), agree(group, options), group->getRank(), local};
}

std::unique_ptr<TrainedModel> make_model(const JobOptions& options) {
  if (options.sync == Sync::kLocal) {
    return std::make_unique<LocalModel>(options);
  }
  return std::make_unique<TrainedModel>(options);
}

std::unique_ptr<Steps> make_steps(
    const JobOptions& options,
    Replica& replica,
    JobDatasets& datasets,
    Membership& membership,
    TrainedModel& model,
    StepClock& clock) {
  if (auto* const local = dynamic_cast<LocalModel*>(&model)) {
    return std::make_unique<LocalSteps>(options, replica, datasets, membership, *local, clock);
  }
  return std::make_unique<Steps>(options, replica, datasets, membership, model, clock);
}

}  // namespace

Job::Impl::Impl(const JobOptions& options) : Impl(options, checked_admission(options)) {
}

Job::Impl::Impl(JobOptions options, std::unique_ptr<Admission> admission)
    : options_(std::move(options)),
      patience_(options_),
      membership_(admission ? MPI_COMM_SELF : MPI_COMM_WORLD, patience_.world_options(options_)),
      replica_(make_replica(membership_.group(), options_, admission != nullptr)),
      datasets_(options_, replica_),
      model_(make_model(options_)),
      steps_(make_steps(options_, replica_, datasets_, membership_, *model_, clock_)),
      recovery_(options_, membership_, replica_, *model_, *steps_, clock_, std::move(admission)),
      checkpoints_(datasets_, membership_, *model_, recovery_),
      in_chunks_(isochron::sum(membership_.group(), {options_.micro_batch > 0 ? 1.0 : 0.0}).front() > 0) {
  membership_.group()->barrier()->wait();
  clock_.start();
  if (!options_.rescue_folder.empty()) {
    last_words_.emplace([this] { rescue(); });
  }
}

JobStatus Job::Impl::status() const {
  return {
      .rank = membership_.rank(),
      .size = membership_.size(),
      .is_first = membership_.rank() == 0 && replica_.joined(),
      .step = replica_.step(),
      .epoch = replica_.epoch(),
      .position = replica_.position(),
      .local_step = steps_->local_step(),
      .round_steps = steps_->round_steps(),
      .next_record = replica_.step(),
      .units_per_sample = replica_.units_per_sample(),
      .stopping = replica_.stopping() || recovery_.came_too_late(),
      .stop_signal = replica_.stop_signal()};
}

const StepRecord& Job::Impl::last_step() const {
  static const StepRecord none;
  return replica_.last_step() ? *replica_.last_step() : none;
}

void Job::Impl::prepare(const Models& models, const Optimizers& optimizers) {
  require(
      !model_->prepared(),
      "prepare() a second time; permitted: once, with all models and optimizers, as in prepare({critic, generator}, "
      "{critic_optimizer, generator_optimizer})");
  model_->prepare(models, optimizers, membership_.group(), in_chunks_);
}

std::size_t Job::Impl::open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  require(model_->prepared(), "loader() before prepare()");
  const std::size_t data = datasets_.add(dataset, loader);
  begin_loop(data);
  return data;
}

void Job::Impl::begin_loop(std::size_t data) {
  require(
      data == datasets_.selected() || !steps_->is_computing(),
      "a loader of another dataset within a step; permitted: one dataset after the other, each in a loop of its own");
  finish_step();
  select(data);
  steps_->begin_loop();
}

void Job::Impl::select(std::size_t data) {
  if (data == datasets_.selected()) {
    return;
  }
  // All are done with the last step on the data that is left: no state of one dataset goes to a worker that is at
  // another one. From here to its next exchange every worker is by itself.
  while (replica_.joined() && !recovery_.try_together([] {})) {
  }
  datasets_.select(data);
}

void Job::Impl::end_epoch() {
  require(steps_->local_step() == 0, "end_epoch() within a round; permitted: between two rounds, as behind a loop");
  if (steps_->is_computing()) {
    steps_->undo();  // the batch at which the loop was left
  }
  finish_step();
  require(datasets_.count() > 0, "end_epoch() before loader()");
  if (replica_.position() > 0) {
    replica_.end_epoch();
    const std::vector<EventRecord> events{
        {.step = replica_.step(),
         .seconds = clock_.now(),
         .event = std::string(to_string(Event::kEpochEnd)),
         .worker = replica_.workers().front().id,
         .words = ""}};
    tell_events(options_, events);
  }
}

bool Job::Impl::joined() {
  if (replica_.joined()) {
    return true;
  }
  const bool joined = recovery_.join();
  steps_->begin_loop();
  return joined;
}

bool Job::Impl::begin_step(Batch& batch) {
  finish_step();
  while (joined() && steps_->loop_goes_on()) {
    // Who comes later knows nothing of the places in other data than the present one.
    if (recovery_.newcomer_is_due() && datasets_.count() < 2) {
      recovery_.admit();
      continue;
    }
    const std::int64_t step = replica_.step();
    try {
      if (std::optional<Batch> next = steps_->begin()) {
        batch = std::move(*next);
        return true;
      }
    } catch (...) {
      recovery_.recover_from(std::current_exception());
    }
    finish_step();
    if (replica_.step() > step && datasets_.present().loader.empty_rounds) {
      batch = {};
      return true;
    }
  }
  return false;
}

bool Job::Impl::backward(const at::Tensor& loss, const BackwardPass& pass) {
  if (steps_->is_dropped()) {
    return false;
  }
  try {
    return follow(steps_->backward(loss, pass));
  } catch (...) {
    recovery_.recover_from(std::current_exception());
  }
  return false;
}

bool Job::Impl::backward(const Batch& batch, const LossOf& loss_of, const BackwardPass& pass) {
  if (steps_->is_dropped()) {
    return false;
  }
  try {
    return follow(steps_->backward(batch, loss_of, pass));
  } catch (...) {
    recovery_.recover_from(std::current_exception());
  }
  return false;
}

void Job::Impl::give_up_step(const std::exception_ptr& error) {
  if (!steps_->is_dropped() || !is_out_of_memory(error)) {
    recovery_.recover_from(error);
  }
}

// All workers have the same averages and reports, so all follow alike.
bool Job::Impl::follow(const StepVerdict& verdict) {
  switch (verdict.action) {
    case StepAction::kTake:
      return true;
    case StepAction::kRedo:
      tell_events(options_, steps_->redo());
      return false;
    case StepAction::kLeaveOut: {
      warn(options_, verdict.message + "; the step is left out");
      const StepOutcome outcome = steps_->leave_out();
      tell_events(options_, outcome.events);
      note(outcome);
      return false;
    }
    case StepAction::kRollBack:
      steps_->undo();
      roll_back(verdict.message);
      return false;
    case StepAction::kStop:
      break;
  }
  steps_->undo();
  throw NonFiniteError(verdict.message);
}

void Job::Impl::roll_back(const std::string& reason) {
  if (checkpoints_.empty()) {
    throw NonFiniteError(reason + ", and there is no checkpoint to go back to");
  }
  warn(options_, reason + "; back to " + checkpoints_.last().string());
  const std::vector<EventRecord> events = checkpoints_.roll_back(reason, clock_.now());
  steps_->begin_loop();
  tell_events(options_, events);
}

// All workers hold the same state, so that of any one is the job's.
void Job::Impl::rescue() {
  std::string said = "nothing is saved before this worker leaves: it does not wait within a step for others";
  try {
    steps_->while_waiting([&] {
      const std::string step = std::to_string(replica_.step());
      said = checkpoints_.save_before_step(options_.rescue_folder, replica_.step())
                 ? "this worker has saved the state before step " + step + ", and leaves"
                 : "nothing is saved before this worker leaves: there is a checkpoint of step " + step + " or later";
    });
  } catch (const std::exception& error) {
    said = std::string("nothing is saved before this worker leaves: ") + error.what();
  }
  warn(options_, said);
}

void Job::Impl::finish_step() {
  require(!steps_->is_computing(), "the loader went on to the next step before backward()");
  steps_->forget_dropped();
  if (!steps_->is_taken()) {
    return;
  }
  try {
    if (const std::optional<StepOutcome> outcome = steps_->finish()) {
      tell_events(options_, outcome->events);
      note(*outcome);
    }
  } catch (...) {
    recovery_.recover_from(std::current_exception());
  }
}

void Job::Impl::note(const StepOutcome& outcome) {
  patience_.follow(outcome.record.seconds);
  recovery_.note_step(outcome);
  tell_step(options_, outcome.record);
}

std::vector<double> Job::Impl::sum(const std::vector<double>& values) {
  std::vector<double> sums;
  const auto add = [&] { sums = isochron::sum(membership_.group(), values); };
  if (replica_.phase() != Replica::Phase::kBetween) {
    add();  // nothing can be done about a failure here
  } else if (!recovery_.try_together(add)) {
    throw Interrupted("the workers changed while they added up values; do it again");
  }
  return sums;
}

void Job::Impl::save(const std::filesystem::path& path) {
  require(model_->prepared(), "save() before prepare()");
  finish_step();
  require_no_round("save()");
  checkpoints_.save(path);
}

void Job::Impl::require_no_round(const std::string& call) const {
  if (const std::int64_t done = steps_->local_step(); done > 0) {
    throw std::logic_error(
        call + " within a round, after " + std::to_string(done) + " of " + std::to_string(steps_->round_steps()) +
        " local steps; permitted: between two rounds, as behind a loop");
  }
}

void Job::Impl::restore(const std::filesystem::path& path) {
  require(model_->prepared(), "restore() before prepare()");
  finish_step();
  require_no_round("restore()");
  checkpoints_.restore(path);
  steps_->begin_loop();
}

void Job::Impl::close() {
  if (!steps_->is_computing()) {
    finish_step();
  }
  steps_->close();
  model_->close();
}

}  // namespace isochron
