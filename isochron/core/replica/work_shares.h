// Shares of a step where samples cost differently: amounts of work instead of numbers of samples.
//
// A policy decides on amounts: the global batch is B samples of mean cost, in units of 1 / 1024 of one, and a worker's
// report says how many units it computed. So every policy works as it is, whatever it was published for. The amount of
// worker k with b samples of work W is (W + c_k b) / (mean work + c_k), where c_k, what a sample costs on top of its
// work, is learned from the reports (curve/cost_parts.h) and shared by workers of one kind. For every step, deal() then
// chooses who takes which of its samples, so that the amounts come out as decided.
//
// The samples of the step stay the next positions of the epoch's order; the deal is a permutation of those positions,
// after which every worker's are consecutive, increasing within its share. So a share is still an interval, of dealt
// positions, and the ledger proves what it did before. Works are 4 bytes a sample. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/curve/cost_parts.h"
#include "isochron/core/deal/deal.h"
#include "isochron/core/policy/controller.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

/// The works of all samples of a dataset, by their numbers, and how those of a share add up.
struct SampleWorks {
  std::vector<float> works;  // finite, 0 .. kMostWork
  Collation collation = Collation::kPacked;

  /// Throws std::invalid_argument that names the sample, its work and what is permitted.
  void validate() const;
};

class WorkShares {
 public:
  static constexpr std::int64_t kUnitsPerSample = 1024;

  /// Throws like validate().
  explicit WorkShares(SampleWorks works);
  /// For a stream, of whose samples nothing is known before they arrive: those of its first step say what is mean.
  static WorkShares of_stream(Collation collation);

  /// 0 of a stream.
  [[nodiscard]] std::int64_t dataset_size() const { return std::ssize(works_->works); }

  /// A worker's bounds in units. Those on samples are kept by deal().
  [[nodiscard]] static Worker in_units(Worker worker);

  struct Share {
    std::int64_t samples = 0;
    double work = 0.0;     // sum of its samples' works, or samples times the largest
    double padding = 0.0;  // how much more that is than the sum
  };
  struct Dealt {
    std::vector<std::int64_t> positions;  // of the step, rank after rank
    std::vector<Share> shares;            // by rank
  };
  /// The positions `first` to `first + size` of the sampler's epoch, as the controller decided. `members` have bounds
  /// in samples, the controller's workers those in units that memory permits.
  [[nodiscard]] Dealt deal(
      const Sampler& sampler,
      std::int64_t first,
      std::int64_t size,
      const Controller& controller,
      std::span<const Worker> members) const;

  /// The works of a stream's samples at the positions `first` and up. Throws like validate().
  [[nodiscard]] Dealt deal_arrived(
      std::span<const float> works, std::int64_t first, const Controller& controller, std::span<const Worker> members);

  /// At least 1 if there is a sample.
  [[nodiscard]] std::int64_t units(const Worker& worker, const Share& share) const;

  /// What a step says: who computed which share in how many seconds.
  void learn(std::span<const Worker> workers, std::span<const Share> shares, const StepTelemetry& telemetry);

  /// What a sample costs on top of its work, in units of the mean sample's work.
  [[nodiscard]] double work_per_sample(const Worker& worker) const;

  /// What was learned.
  void exchange(StateExchange& state);

 private:
  struct Learned {
    WorkerId worker = 0;
    std::string kind;
    CostParts parts;
    void exchange(StateExchange& state);
  };

  explicit WorkShares(std::shared_ptr<const SampleWorks> works);
  [[nodiscard]] Dealt deal_works(
      std::span<const double> works,
      std::int64_t first,
      const Controller& controller,
      std::span<const Worker> members) const;
  void pool();
  [[nodiscard]] std::vector<DealSlot> slots(
      const Controller& controller, std::span<const Worker> members, std::int64_t samples) const;

  std::shared_ptr<const SampleWorks> works_;
  double mean_work_ = 0.0;  // 0: not known yet
  std::vector<Learned> learned_;
  std::map<std::string, double, std::less<>> ratios_;  // by kind
};

}  // namespace isochron
