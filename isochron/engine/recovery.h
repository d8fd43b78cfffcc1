// What happens when a step fails and when workers come and go. It takes the job from one group of workers to the next:
//   a) everything that refers to the old group is let go, and a step that the optimizer has not taken is undone;
//   b) those that are left come together (membership.h) and tell one another how far they are (Replica::progress);
//   c) who is behind gets the state of the one whom the settlement names;
//   d) the replica adopts the settlement, which deals B anew, and the model enters the new group.
// It never calls back into the loop: who calls it goes on with whatever the replica says now. Not thread-safe.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "isochron/comm/newcomer.h"
#include "isochron/core/replica/replica.h"
#include "isochron/engine/job.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/step_clock.h"
#include "isochron/engine/steps.h"
#include "isochron/engine/trained_model.h"

namespace isochron {

class Recovery final : private Member {
 public:
  // `admission`: of a process that is to join a running job; null of others.
  Recovery(
      const JobOptions& options,
      Membership& membership,
      Replica& replica,
      TrainedModel& model,
      Steps& steps,
      StepClock& clock,
      std::unique_ptr<Admission> admission);

  // Something was thrown in a step. Collective among those that are left. Throws it again if it is neither a lost peer
  // nor a lack of memory that a smaller batch could help, and isochron::Error if the job cannot go on.
  void recover_from(const std::exception_ptr& error);
  // Runs an exchange between two steps; false if the workers changed meanwhile, so that it is to be done again.
  bool try_together(const std::function<void()>& exchange);

  // After every finished step: asks whether somebody wants to join.
  void note_step(const StepOutcome& outcome);
  // All know that somebody is ready to join.
  bool newcomer_is_due() const { return newcomer_is_due_; }
  // Collective, between two steps.
  void admit();
  // The newcomer's side: false if the job has ended.
  bool join();
  // It has ended before this process could join.
  bool came_too_late() const { return came_too_late_; }

 private:
  void recover(const std::vector<Peer>& suspects);
  void let_go();
  void adopt(const Settlement& settlement);

  // Member.
  ProgressReport progress() const override { return replica_.progress(clock_.now()); }
  void catch_up(const Settlement& settlement) override;

  const JobOptions& options_;
  Membership& membership_;
  Replica& replica_;
  TrainedModel& model_;
  Steps& steps_;
  StepClock& clock_;
  std::unique_ptr<Admission> admission_;  // until this process has joined
  bool newcomer_is_due_ = false;
  bool came_too_late_ = false;
};

}  // namespace isochron
