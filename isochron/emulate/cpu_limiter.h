// How much CPU time every worker of a job may use: the face that control groups and the duty cycle share.
#pragma once

#include <cstddef>

#include "isochron/emulate/quota.h"
#include "isochron/emulate/worker_process.h"

namespace isochron::emulate {

class CpuLimiter {
 public:
  CpuLimiter() = default;
  CpuLimiter(const CpuLimiter&) = delete;
  CpuLimiter& operator=(const CpuLimiter&) = delete;
  virtual ~CpuLimiter() = default;

  /// Another worker, after the last one.
  virtual void add(const Quota& quota) = 0;
  /// The worker has begun; `process` stays until forget(), or outlives this.
  virtual void watch(std::size_t worker, const WorkerProcess& process) = 0;
  /// Another process is to take the place of the one that is watched.
  virtual void forget(std::size_t worker) = 0;
  /// Throws isochron::Error if the new quota cannot be set.
  virtual void limit(std::size_t worker, const Quota& quota) = 0;
};

}  // namespace isochron::emulate
