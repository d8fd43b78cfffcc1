// A training job: this process is one of its workers. It holds the replicated controller, deals the samples, weights
// and averages the gradients, and keeps count of what was used.
//
//   isochron::Job job({.global_batch = 256});              // under mpirun, srun or alone
//   job.prepare(*model, optimizer);
//   for (const auto epoch : job.epochs(10))
//     for (const auto& [x, y] : job.loader(dataset)) {     // my share of every global batch
//       const auto loss = torch::cross_entropy_loss(model->forward(x), y);  // mean over my samples
//       job.backward(loss);
//       optimizer.step();
//       optimizer.zero_grad();
//     }
//
// One step, the same on all workers:
//   a) all hold the same controller state, so all know the same split of B;
//   b) the loader hands out this worker's slice of the epoch's permutation;
//   c) backward() scales the mean loss by b_k K / B and averages gradients while it computes;
//   d) at the last local gradient, what was measured goes round in one small all-gather;
//   e) it is waited for when the loader goes on, after the optimizer's step; the controller observes it, the ledger
//      notes the samples: the step is finished.
//
// When something fails inside a step, the step did not happen: a worker that died or was killed because it kept the
// others waiting, memory that ran out, a gradient that is no number. The workers that are left agree on the last
// finished step, deal B among themselves and go on; backward() returns false and leaves no gradients, so that the
// optimizer has nothing to do, and the loader hands out the same samples of the epoch again. A new worker may join
// between two steps. All this needs an MPI with ULFM (Open MPI 5 under --with-ft ulfm); with others a lost worker is a
// PeerError on all, and the job is to be started again from its last checkpoint.
//
// With `sync` kLocal the same loop trains in rounds (docs/local.md): a step of all of the above is a round of H global
// batches, the loader hands out local batches, optimizer.step() takes local steps, and the parameters are averaged when
// the loader goes on behind the last of a round. save() is for between two rounds then.
//
// With `sync` kAsp or kSsp the same loop trains asynchronously: every step is an iteration of this worker alone, and
// optimizer.step() has nothing to do, since servers apply the update (docs/async.md). What is collective (sum, save, …)
// is then for barriers: before the first loader, and between two.
//
// Not thread-safe; several jobs may live in one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "isochron/core/job_settings.h"
#include "isochron/core/peer_error.h"
#include "isochron/core/policy/controller.h"
#include "isochron/core/replica/replica.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"
#include "isochron/engine/data_parallel.h"
#include "isochron/engine/loader.h"
#include "isochron/engine/models.h"

namespace isochron {

// Updates of a job's workers, in chunks as they travel.
struct PushCounts {
  std::int64_t sent = 0;
  std::int64_t applied = 0;
};

// The workers changed in the middle of an exchange such as sum(); the job has recovered and goes on. Repeat it, with
// the share that this worker has now.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// A process to start as a new worker.
struct JoinRequest {
  std::vector<std::string> command;  // program and arguments; the program makes a Job like those that run
  std::string host;                  // empty: any of the job's
  std::function<bool()> gone;        // whether it has ended before it could join; none: nobody can tell
};

// The settings (core/job_settings.h), and what only a program can give.
struct JobOptions : JobSettings {
  c10::Device device = c10::Device(c10::DeviceType::CPU);

  // Kills a worker for good and returns true, within half of the time-out; called before the others go on without it,
  // by all of them, in a thread for each worker. False of one that is gone does no harm. None: a process of this host
  // is killed, and one of another host is an error.
  std::function<bool(const Peer&)> fence;
  // Asked by the first worker after every step.
  std::function<std::optional<JoinRequest>()> join_requests;
  // Where a worker saves the state before the step under way, before it is killed since a call of MPI never returns: in
  // step only, while it waits for others within forward or backward. Empty: nowhere.
  std::filesystem::path rescue_folder;
  // Each is told on every worker.
  std::function<void(const StepRecord&)> on_step;      // every finished step
  std::function<void(const UpdateRecord&)> on_update;  // asynchronous modes: every worker's updates
  std::function<void(const EventRecord&)> on_event;    // deaths, joins and so on
  // What a person should know, such as who keeps the others waiting; also from another thread.
  std::function<void(const std::string&)> warn;

  // The time-out of every exchange.
  std::chrono::milliseconds patience() const;
  // "cpu", "cuda": this worker's kind unless the settings name one.
  std::string device_type() const;
};

class Job {
 public:
  // Collective. Starts MPI if nobody has. Throws std::invalid_argument, on all workers, if they do not agree on what
  // they share or their bounds cannot hold B.
  explicit Job(const JobOptions& options);
  // Job({.global_batch = 256})
  explicit Job(const JobSettings& settings) : Job(JobOptions{settings}) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  // Both change when workers come and go. A process that joins a running job is a world of its own until its first
  // batch, and not the first.
  int rank() const;
  int size() const;
  bool is_first() const;

  // Collective, once: prepare(model, optimizer), or prepare({critic, generator}, {critic_optimizer, …}). Move models to
  // the device before. Gives all workers rank 0's parameters and buffers, hooks the gradients, and makes every
  // BatchNorm in training mode use the global batch. All must outlive the job, or close().
  void prepare(const Models& models, const Optimizers& optimizers);

  // Epoch numbers from the present one (0, or where a restored job is) to count - 1; ends early when stopping().
  Epochs epochs(std::int64_t count);
  // What is left of the epoch, a batch a step; ends early when stopping(). Other data has an epoch and a ledger of its
  // own, which are the job's while it is trained on: one dataset after the other, each in a loop of its own. A new
  // object of the same kind and size counts as the same data, unless `options.name` tells them apart. Collective for a
  // dataset that is not the present one.
  Loader loader(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& options = {});
  // After a loop that was left: the rest of the epoch is not wanted, so that the next loop begins with the next one.
  // Without it the next loop goes on where this one stopped. The same on all workers; in step only.
  void end_epoch();

  // Once a batch, or last. `loss` is the mean over its samples; of several losses, of any number of forward passes,
  // their sum.
  // Gradients are the global mean's afterwards. False if the step did not happen here (see above): no gradient is left
  // then, and optimizer.step() changes nothing.
  bool backward(const at::Tensor& loss);
  // The same in micro-batches, gradients accumulated; `loss_of` is called for each. Memory that runs out in `loss_of`
  // is dealt with, too.
  using LossOf = std::function<at::Tensor(const at::Tensor& data, const at::Tensor& target)>;
  bool backward(const Batch& batch, const LossOf& loss_of);
  // For loops with several backward passes a step: computes and averages the gradients of the parameters that these
  // optimizers have, and of no others, whatever the loss depends on; then the optimizers may take their steps, and the
  // next pass may come. Gradients of several passes add up until zero_grad(). Losses of the passes are added up in the
  // log. All workers make the same passes. When one returns false, the step did not happen: what optimizers have
  // changed in it is as before, and its further passes do nothing and return false, too. SGD, Adam and AdamW can be put
  // back so. `retain_graph`: a later pass goes through what this one goes through.
  bool backward(const at::Tensor& loss, const Optimizers& optimizers, bool retain_graph = false);
  bool backward(const Batch& batch, const LossOf& loss_of, const Optimizers& optimizers);
  // For loops that compute the loss themselves: it could not be computed for want of memory (catch std::bad_alloc and
  // c10::Error; `error` is rethrown if it is something else). In place of backward().
  void give_up_step(const std::exception_ptr& error);

  // The number of the step under way, or of the coming one between two steps.
  std::int64_t step() const;
  std::int64_t epoch() const;
  // The place of the step's first sample in the epoch's order; 0 in asynchronous modes.
  std::int64_t position() const;
  // In local rounds, which step() counts: global batches of the round under way or of the coming one, and how many of
  // its local steps this worker has done. 1 and 0 otherwise.
  std::int64_t round_steps() const;
  std::int64_t local_step() const;
  std::int64_t steps_per_epoch() const;
  const Decision& decision() const;
  // Samples by rank; where shares are dealt by cost, amounts of work in samples of mean cost, rounded.
  std::vector<std::int64_t> batch_sizes() const;
  // By rank, with the bounds that they gave themselves.
  const std::vector<Worker>& workers() const;
  // For those who know more than the policy, such as new bounds or weights: between two steps, and the same on all
  // workers. Throws std::invalid_argument if they cannot hold B.
  void change_workers(std::vector<Worker> workers);

  // The last finished step; the loss is the mean over the global batch. Not in asynchronous modes.
  const StepRecord& last_step() const;
  // In asynchronous modes: what this worker's last iteration added.
  const UpdateRecord& last_update() const;
  // The number that the next record of a step will have: step(), but for asynchronous modes, where updates are counted.
  std::int64_t next_record() const;
  const Ledger& ledger() const;

  // Collective, between two steps: element-wise sums over the workers. Both throw Interrupted if the workers changed.
  std::vector<double> sum(const std::vector<double>& values);
  void barrier();

  // Waits for the reports of a step whose optimizer step is done; the loader, save() and close() do it by themselves.
  void finish_step();

  // Asynchronous modes and local rounds: the loader of all workers ends where `step` global batches are used, if that
  // is before the end of the epoch; -1: at the end of the epoch only. All wait for each other there and hold the same
  // parameters; a round is cut. Before loader(), and the same on all workers.
  void barrier_at(std::int64_t step);
  // The pushes of all workers, up to the last barrier.
  PushCounts push_counts() const;

  // All workers end their loops after the step under way, once the word has gone round.
  void stop();
  bool stopping() const;
  // The signal that asked for it on any worker; 0: none.
  int stop_signal() const;

  // Between two steps or after the last optimizer's step. Collective; rank 0 writes, atomically. The file holds models,
  // optimizers, sampler, controller and ledger. With restore() training goes on as it would have; on another number of
  // workers as well.
  void save(const std::filesystem::path& path);
  // After prepare(); before loader() or, in step, after it.
  void restore(const std::filesystem::path& path);

  // Finishes the step under way and lets go of models and optimizers. Collective; the destructor does it too.
  void close();

 private:
  friend class Loader;
  friend class Epochs;
  class Driver;  // what is behind a job
  class Impl;    // in step
  class Async;   // not in step
  std::unique_ptr<Driver> driver_;
  Impl* in_step_ = nullptr;       // the driver, if it is this
  Async* out_of_step_ = nullptr;  // likewise
};

}  // namespace isochron
