// What a worker says of a step, and what follows from all workers' words. Pure; every worker computes the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

// Numbers only: it travels as a message of fixed size.
struct Report {
  double batch = 0;          // samples that count
  double start = 0;          // of the step, seconds on this worker's clock since the job began
  double seconds = 0;        // computing to the last local gradient, waiting excluded
  double warm = 1;           // 0: the device's first step with a batch of this size, whose time says nothing
  double waited = 0;         // within that time, for the others' shares of BatchNorm statistics
  double meetings = 1;       // how often it waited for all others, the end of the step included
  double cpu = 0;            // share of that time in which this process computed, 0..1
  double memory = 0;         // share of the machine's memory that it holds, 0..1
  double loss = 0;           // mean over its samples
  double local_square = 0;   // of the step before: b_k / B times the squared norm of its own mean gradient, if measured
  double global_square = 0;  // of the step before: squared norm of the averaged gradient
  double decision = 0;       // digest() of what this worker believes the step to be
  double stop = 0;           // 0: go on; 1: stop; 1 + n: stop because of signal n
  double finite = 1;         // 0: its own gradient is not, as far as it was looked at
  double newcomer = 0;       // rank 0's counts: 1 if a worker is ready to join
};

// What all workers must believe alike, in as many bits as a double holds exactly.
double digest(const Decision& decision, const SamplerState& place);

// Throws isochron::Error naming the first rank whose digest is not rank 0's.
void check_agreement(std::span<const Report> reports, std::int64_t step);

// `finished`: when the gradients were averaged, on this worker's clock; the end of the step is `now`.
StepRecord make_record(
    std::span<const Report> reports,
    std::span<const Worker> workers,
    const Decision& decision,
    const SamplerState& place,
    double finished,
    double now);

// Of a step whose reports are lost.
StepRecord make_unreported_record(
    std::span<const Interval> slices,
    std::span<const Worker> workers,
    const Decision& decision,
    const SamplerState& place,
    double now);

StepTelemetry make_telemetry(std::span<const Report> reports, std::span<const Worker> workers, std::int64_t step);

// Of the step before. Hardware may round norms differently, so rank 0's word counts for the average.
GradientMoments make_moments(std::span<const Report> reports);

}  // namespace isochron
