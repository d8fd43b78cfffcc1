// A CPU quota without any right: stops a worker (SIGSTOP) once it has used its share of a period, and continues it
// (SIGCONT) when the next one begins.
//
// It counts the CPU time that the worker has used, not the time that went by: a worker that waits for others keeps its
// share, as it would in a control group. Coarser than those: a worker is stopped some 0.1 ms late, which the next
// period takes off, and processes that it starts are stopped with it but not counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "isochron/emulate/cpu_limiter.h"

namespace isochron::emulate {

class DutyCycle : public CpuLimiter {
 public:
  explicit DutyCycle(const std::vector<Quota>& quotas);
  /// Lets all workers run.
  ~DutyCycle() override;

  void add(const Quota& quota) override;
  /// Starts a thread.
  void watch(std::size_t worker, const WorkerProcess& process) override;
  /// Waits for its end, a period at most.
  void forget(std::size_t worker) override;
  /// Holds from the worker's next period on.
  void limit(std::size_t worker, const Quota& quota) override;

 private:
  struct Share {
    std::int64_t period = 0;  // microseconds
    std::atomic<std::int64_t> microseconds = 0;
    std::jthread thread;
  };
  static std::unique_ptr<Share> share_of(const Quota& quota);

  std::vector<std::unique_ptr<Share>> shares_;
};

}  // namespace isochron::emulate
