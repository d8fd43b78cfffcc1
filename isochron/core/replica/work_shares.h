// Shares of a step where samples cost differently: amounts of work instead of numbers of samples.
//
// A policy decides on amounts: the global batch is B samples of mean cost, in units of 1 / 1024 of one, and a worker's
// report says how many units it computed. So every policy works as it is, whatever it was published for. The amount of
// worker k with b samples of work W is (W + c_k b) / (mean work + c_k), where c_k, what a sample costs on top of its
// work, is learned from the reports (curve/cost_parts.h) and shared by workers of one kind. For every step, deal() then
// chooses who takes which of its samples, so that the amounts come out as decided.
//
// Where works are lengths of sequences that attend to themselves, the work of a length L is L + q L^2 (mean L / mean
// L^2), and q, how much the squares cost beside the lengths, is learned likewise and shared by all workers.
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
  bool learns_squares = false;  // works are lengths, whose squares cost, too, and how much is learned

  /// Throws std::invalid_argument that names the sample, its work and what is permitted.
  void validate() const;
};

/// The same of data whose samples are known only when they arrive, step by step.
struct ArrivingWorks {
  Collation collation = Collation::kPacked;
  bool learns_squares = false;
  std::int64_t dataset_size = 0;  // 0: a stream, whose end only the reader knows
};

class WorkShares {
 public:
  static constexpr std::int64_t kUnitsPerSample = 1024;

  /// Throws like validate().
  explicit WorkShares(SampleWorks works);
  /// The samples of the first step say what is mean.
  explicit WorkShares(const ArrivingWorks& works);

  /// 0 of a stream.
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }
  /// Works are not known before: deal_arrived() is told them.
  [[nodiscard]] bool arrive() const { return works_->works.empty(); }

  /// A worker's bounds in units. Those on samples are kept by deal().
  [[nodiscard]] static Worker in_units(Worker worker);

  struct Share {
    std::int64_t samples = 0;
    double work = 0.0;     // sum of its samples' works, or samples times the largest
    double padding = 0.0;  // how much more that is than the sum
    double linear = 0.0;   // the part of the work that is not that of squares
    double squares = 0.0;  // sum of the squares of its samples' lengths, or samples times the largest
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

  /// The works of samples that have arrived, at the positions `first` and up. Throws like validate().
  [[nodiscard]] Dealt deal_arrived(
      std::span<const float> works, std::int64_t first, const Controller& controller, std::span<const Worker> members);

  /// At least 1 if there is a sample.
  [[nodiscard]] std::int64_t units(const Worker& worker, const Share& share) const;

  /// What a step says: who computed which share in how many seconds.
  void learn(std::span<const Worker> workers, std::span<const Share> shares, const StepTelemetry& telemetry);

  /// What a sample costs on top of its work, in units of the mean sample's work.
  [[nodiscard]] double work_per_sample(const Worker& worker) const;
  /// What the mean square of a length costs, in units of the mean length's; 0 unless it is learned.
  [[nodiscard]] double work_per_square() const { return per_square_; }

  /// What was learned.
  void exchange(StateExchange& state);

 private:
  struct Learned {
    WorkerId worker = 0;
    std::string kind;
    CostParts parts;
    void exchange(StateExchange& state);
  };

  [[nodiscard]] Dealt deal_works(
      std::span<const double> works,
      std::int64_t first,
      const Controller& controller,
      std::span<const Worker> members) const;
  void take_means(std::span<const float> works);
  /// That of a share or of a sample.
  [[nodiscard]] double work_of(double linear, double squares) const;
  void pool_samples();
  void pool_squares();
  [[nodiscard]] std::vector<DealSlot> slots(
      const Controller& controller, std::span<const Worker> members, std::int64_t samples) const;

  std::shared_ptr<const SampleWorks> works_;
  std::int64_t dataset_size_;
  double mean_work_ = 0.0;    // less that of squares; 0: not known yet
  double mean_square_ = 0.0;  // of lengths
  double per_square_ = 0.0;
  std::vector<Learned> learned_;
  std::map<std::string, double, std::less<>> ratios_;  // by kind
};

}  // namespace isochron
