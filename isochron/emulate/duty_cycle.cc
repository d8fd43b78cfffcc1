#include "isochron/emulate/duty_cycle.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace isochron::emulate {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr nanoseconds kShortestSleep = std::chrono::microseconds(100);

/// Lets the worker run until it has used `budget` or the period is over; returns what is left of the budget, less than
/// 0 if it used more.
nanoseconds run_for(const WorkerProcess& process, nanoseconds budget, Clock::time_point end) {
  const nanoseconds start = process.cpu_time().value_or(nanoseconds(0));
  nanoseconds left = budget;
  while (left > nanoseconds(0) && Clock::now() < end) {
    std::this_thread::sleep_until(std::min(end, Clock::now() + std::max(left, kShortestSleep)));
    left = budget - (process.cpu_time().value_or(start) - start);
  }
  return left;
}

void run_cycle(
    const std::stop_token& stop,
    const WorkerProcess& process,
    const std::atomic<std::int64_t>& microseconds,
    std::chrono::microseconds period) {
  nanoseconds budget(0);
  Clock::time_point end = Clock::now();
  while (!stop.stop_requested() && process.is_alive()) {
    const nanoseconds share = std::chrono::microseconds(microseconds);
    budget = std::min(budget + share, share);             // debts are kept, savings are not
    end = std::max(end, Clock::now() - period) + period;  // a period that was missed is not made up for
    if (budget > nanoseconds(0)) {
      process.signal(SIGCONT);
      budget = run_for(process, budget, end);
    }
    if (budget <= nanoseconds(0)) {
      process.signal(SIGSTOP);
    }
    std::this_thread::sleep_until(end);
  }
  process.signal(SIGCONT);
}

}  // namespace

DutyCycle::DutyCycle(const std::vector<Quota>& quotas) {
  for (const Quota& quota : quotas) {
    shares_.push_back(share_of(quota));
  }
}

DutyCycle::~DutyCycle() {
  for (const auto& share : shares_) {
    share->thread.request_stop();
  }
}

std::unique_ptr<DutyCycle::Share> DutyCycle::share_of(const Quota& quota) {
  auto share = std::make_unique<Share>();
  share->period = quota.period;
  share->microseconds = quota.microseconds;
  return share;
}

void DutyCycle::add(const Quota& quota) {
  shares_.push_back(share_of(quota));
}

void DutyCycle::forget(std::size_t worker) {
  shares_[worker]->thread = {};
}

void DutyCycle::watch(std::size_t worker, const WorkerProcess& process) {
  Share& share = *shares_[worker];
  share.thread = std::jthread([&share, &process](const std::stop_token& stop) {
    run_cycle(stop, process, share.microseconds, std::chrono::microseconds(share.period));
  });
}

void DutyCycle::limit(std::size_t worker, const Quota& quota) {
  shares_[worker]->microseconds = quota.microseconds;
}

}  // namespace isochron::emulate
