#include "isochron/core/dispatch/dispatcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/sample/sampler.h"

namespace isochron {

Dispatcher::Dispatcher(Controller controller, std::optional<std::int64_t> bound, ClaimPool claims, std::int64_t first)
    : controller_(std::move(controller)), bound_(bound), clocks_(bound, first), claims_(std::move(claims)) {
  for (const Worker& worker : controller_.roster().workers) {
    clocks_.join(worker.id);
  }
}

void Dispatcher::begin(ClaimPool claims) {
  ISO_CHECK(claims_.done(), "other samples are to be used before all of the last ones are");
  claims_ = std::move(claims);
}

void Dispatcher::ask(WorkerId worker) {
  ISO_CHECK(std::ranges::find(free_, worker) == free_.end(), "worker " + std::to_string(worker) + " asks twice");
  free_.push_back(worker);
}

std::vector<WorkOrder> Dispatcher::take_orders() {
  if (in_rounds()) {
    begin_round();
  }
  std::vector<WorkOrder> orders;
  std::erase_if(free_, [&](WorkerId worker) {
    const std::optional<WorkOrder> order = order_for(worker);
    if (order) {
      orders.push_back(*order);
    }
    return order.has_value();
  });
  return orders;
}

std::optional<WorkOrder> Dispatcher::order_for(WorkerId worker) {
  if (!clocks_.may_go_on(worker)) {
    return std::nullopt;
  }
  WorkOrder order{.worker = worker, .iteration = clocks_.clock(worker)};
  order.lead = order.iteration - clocks_.slowest();
  if (in_rounds()) {
    const auto dealt = dealt_.find(worker);
    if (dealt == dealt_.end()) {
      return std::nullopt;
    }
    order.positions = dealt->second;
    order.round_samples = round_samples_;
    dealt_.erase(dealt);
  } else {
    order.positions = claims_.exhausted() ? Interval{} : claims_.claim(worker, batch_of(worker));
  }
  return order.positions.size() > 0 ? std::optional(order) : std::nullopt;
}

// Whoever gets nothing, in the last, short round of an epoch, has nothing to wait for either.
void Dispatcher::begin_round() {
  if (clocks_.slowest() == round_ || claims_.exhausted()) {
    return;
  }
  round_ = clocks_.slowest();
  round_samples_ = 0;
  const std::vector<Worker>& workers = controller_.roster().workers;
  const std::int64_t samples = std::min(controller_.roster().global_batch, claims_.left());
  const std::vector<std::int64_t> shares = deal(samples, controller_.decision().batch_sizes);
  for (std::size_t k = 0; k < workers.size(); ++k) {
    if (shares[k] > 0 && !claims_.exhausted()) {
      const Interval claim = claims_.claim(workers[k].id, shares[k]);
      dealt_.emplace(workers[k].id, claim);
      round_samples_ += claim.size();
    } else {
      (void)clocks_.finish(workers[k].id);
    }
  }
}

Interval Dispatcher::finish(WorkerId worker, const WorkerTelemetry& telemetry) {
  const Interval used = claims_.finish(worker);
  (void)clocks_.finish(worker);  // take_orders() asks the table itself who was released
  reports_.insert_or_assign(worker, telemetry);
  observe_if_all_reported();
  return used;
}

void Dispatcher::observe_if_all_reported() {
  const std::vector<Worker>& workers = controller_.roster().workers;
  const bool all = std::ranges::all_of(
      workers, [&](const Worker& worker) { return batch_of(worker.id) == 0 || reports_.contains(worker.id); });
  if (!all) {
    return;
  }
  StepTelemetry telemetry{.step = controller_.decision().step};
  for (const auto& [id, report] : reports_) {
    telemetry.workers.push_back(report);
  }
  reports_.clear();
  controller_.observe(telemetry);
}

void Dispatcher::give_up(WorkerId worker) {
  if (in_rounds()) {
    throw Error("a worker gave up its part of a round of stale-synchronous training with bound 0");
  }
  claims_.give_back(worker);
}

void Dispatcher::leave(WorkerId worker) {
  if (!settled()) {
    throw Error("a worker is lost in the middle of a round of stale-synchronous training with bound 0");
  }
  std::vector<Worker> rest = controller_.roster().workers;
  std::erase_if(rest, [&](const Worker& other) { return other.id == worker; });
  controller_.change_workers(std::move(rest));
  claims_.give_back(worker);
  (void)clocks_.leave(worker);
  std::erase(free_, worker);
  reports_.erase(worker);
  observe_if_all_reported();
}

bool Dispatcher::at_barrier() const {
  return claims_.done() && free_.size() == clocks_.size();
}

std::int64_t Dispatcher::batch_of(WorkerId worker) const {
  const std::vector<Worker>& workers = controller_.roster().workers;
  const auto found = std::ranges::find(workers, worker, &Worker::id);
  ISO_CHECK(found != workers.end(), "worker " + std::to_string(worker) + " is not in the roster");
  return controller_.decision().batch_sizes[static_cast<std::size_t>(found - workers.begin())];
}

}  // namespace isochron
