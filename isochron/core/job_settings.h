// The options of a job that can be written down: on a command line, in a file, as keywords in Python. One struct holds
// the values, and one table, job_options(), says of each its name, type, default, permitted values and meaning, who
// takes it, whether all workers must agree on it and whether a checkpoint must match. The program's options, the
// handshake of the workers, the check of a checkpoint, the keywords of isochron.torch.Job and isochron.tensorflow.Job
// and the tables in the documents follow from it.
//
// A new option is a field here, a row in job_settings.cc, and the place that uses it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/names.h"
#include "isochron/core/options.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/staleness/sync.h"
#include "isochron/core/worker.h"

namespace isochron {

enum class Weighting : std::uint8_t {
  kExact,  // b_k K / B: the gradient of one batch of B
  kMean,   // 1: what plain data parallel does; wrong for unequal batches, for comparison only
};

inline constexpr Names<Weighting, 2> kWeightingNames{{{Weighting::kExact, "exact"}, {Weighting::kMean, "mean"}}};

/// What is done about an averaged gradient that is not finite, on any worker.
enum class OnNonFinite : std::uint8_t {
  kStop,      // the job ends, naming the workers; the model is as before the step
  kSkip,      // the step's samples are left out
  kRollBack,  // the job goes on from its last checkpoint; when the step fails again, it is left out
  kIgnore,    // nothing is looked at
};

inline constexpr Names<OnNonFinite, 4> kOnNonFiniteNames{
    {{OnNonFinite::kStop, "stop"},
     {OnNonFinite::kSkip, "skip"},
     {OnNonFinite::kRollBack, "rollback"},
     {OnNonFinite::kIgnore, "ignore"}}};

/// What gradients travel as.
enum class Compression : std::uint8_t {
  kNone,
  kBf16,  // half the bytes of float: 8 significant bits per addition, the range of float
  kInt8,  // a quarter: whole numbers and a scale for every block; what rounding loses is added to the next step's
};

inline constexpr Names<Compression, 3> kCompressionNames{
    {{Compression::kNone, "none"}, {Compression::kBf16, "bf16"}, {Compression::kInt8, "int8"}}};

/// What the forward pass computes in, where the user's loop does not say so itself.
enum class Precision : std::uint8_t {
  kFloat32,
  kBf16,  // PyTorch's autocast: matrix products and convolutions in bfloat16, the rest and the parameters as they are
};

inline constexpr Names<Precision, 2> kPrecisionNames{{{Precision::kFloat32, "float32"}, {Precision::kBf16, "bf16"}}};

struct DataParallelOptions {
  // Gradients are reduced in buckets of up to this size; the first one of a backward pass, which delays the start of
  // communication, is at most 1 MiB. 1 KiB to 1 GiB.
  std::int64_t bucket_bytes = std::int64_t{25} << 20U;
  // For models in which a step may leave out parameters; costs a walk through the graph every step.
  bool find_unused_parameters = false;
  // They are accumulated and applied in their own type.
  Compression compression = Compression::kNone;
  // Fill in the squares of BackwardResult; costs two passes over the gradients.
  bool measure_moments = false;

  /// Throws std::invalid_argument naming the field, its value and what is permitted.
  void validate() const;
};

/// For Sync::kAsp and kSsp (docs/async.md).
struct AsyncOptions {
  std::int64_t staleness = 3;  // of kSsp, 0 or more; 0 gives the result of kBsp
  std::int64_t servers = 0;    // the last so many ranks serve parameters and do not train; 0: every worker does both
  PushRate rate;               // the learning-rate factor of an update
  bool momentum_correction = false;  // SGD's momentum less what asynchrony adds to it
};

/// What takes the step at the end of a round, along the averaged change of the parameters.
enum class Outer : std::uint8_t {
  kAverage,   // the change as it is, times the rate: local SGD
  kNesterov,  // SGD with Nesterov momentum: DiLoCo
};

inline constexpr Names<Outer, 2> kOuterNames{{{Outer::kAverage, "average"}, {Outer::kNesterov, "nesterov"}}};

/// For Sync::kLocal (docs/local.md).
struct RoundOptions {
  std::int64_t steps = 0;       // H: global batches of a round, and local steps of every worker; 0: chosen
  double network_share = 0.05;  // of the time, that exchanges may take where H is chosen
  Outer outer = Outer::kAverage;
  double rate = 0.0;      // of the outer step; 0: 1 with kAverage, 0.7 with kNesterov
  double momentum = 0.9;  // of kNesterov

  [[nodiscard]] double outer_rate() const { return rate > 0.0 ? rate : outer == Outer::kAverage ? 1.0 : 0.7; }
};

struct JobSettings {
  // What the workers share; all must give the same.
  std::int64_t global_batch = 0;    // B, 1 or more
  std::string policy = "isochron";  // a specification for make_policy
  RateOptions rate;                 // how the optimizer's learning rate follows B
  Weighting weighting = Weighting::kExact;
  std::uint64_t seed = 0;  // of the order of the samples, and of dropout
  LastBatch last_batch = LastBatch::kKeep;
  bool sync_batch_norm = true;  // statistics over the global batch; false: over this worker's share alone
  Precision precision = Precision::kFloat32;
  DataParallelOptions gradients;  // buckets, compression
  Sync sync = Sync::kBsp;
  AsyncOptions async;
  RoundOptions rounds;
  OnNonFinite on_nonfinite = OnNonFinite::kStop;
  std::string on_bad_sample = "stop";    // isochron.torch: stop, skip
  std::string start_from;                // the log of an earlier run, whose speeds the first split follows; empty: none
  std::string transport = "tensorflow";  // isochron.tensorflow: tensorflow, sockets

  // What a worker says of itself.
  std::string name;            // for people; empty: HOST-K, its host and its place there
  std::string kind;            // workers of one kind share the shape of their time curve; empty: the device's type
  double weight = 0.0;         // nominal relative speed; 0: unknown
  std::int64_t min_batch = 1;  // 0 or more
  std::int64_t max_batch = kNoLimit;  // what memory holds
  std::int64_t granularity = 1;       // its batch sizes are multiples of this
  std::int64_t micro_batch = 0;       // larger batches are computed in chunks of at most this; 0: in one
  std::int64_t prefetch_threads = 1;  // that prepare samples
  double timeout = 300.0;             // seconds of every exchange; who keeps the others waiting for longer is evicted
  bool handle_signals = false;        // SIGTERM and SIGINT on any worker end the loops of all at the same step
};

/// Who takes an option, and with what.
enum JobOptionTraits : unsigned {
  kCommandLine = 1,
  kTorch = 2,
  kTensorFlow = 4,
  kAgreed = 8,         // all workers must give the same
  kCheckpointed = 16,  // a job that goes on from a checkpoint must give what it holds
  kAsyncOnly = 32,     // with sync asp and ssp only
  kSspOnly = 64,       // with sync ssp only
  kLocalOnly = 128,    // with sync local only
  kEverywhere = kCommandLine | kTorch | kTensorFlow,
};

/// The frameworks that run a job.
enum class Framework : std::uint8_t { kNative, kTorch, kTensorFlow };

struct JobOption : Option {
  unsigned traits = 0;
  std::map<std::string, unsigned, std::less<>> takers;  // of choices that not everybody takes who takes the option

  [[nodiscard]] bool is(JobOptionTraits trait) const { return (traits & trait) == trait; }
  /// What kCommandLine, kTorch or kTensorFlow may choose.
  [[nodiscard]] std::vector<std::string> choices_of(JobOptionTraits taker) const;
};

/// The table, bound to `settings`, which must outlive it.
std::vector<JobOption> job_options(JobSettings& settings);
/// The row of that name, also by an alias; null if there is none.
const JobOption* find_option(std::span<const JobOption> options, std::string_view name);

/// Throws std::invalid_argument naming the option, the value and what is permitted: every value by itself, what is said
/// in vain since another `sync` would need it, and the combinations that `framework` cannot do.
void validate(const JobSettings& settings, Framework framework = Framework::kNative);

/// The values of all options with the trait, by name: what workers compare (kAgreed), what a checkpoint holds
/// (kCheckpointed).
std::map<std::string, std::string, std::less<>> option_texts(const JobSettings& settings, JobOptionTraits trait);

/// This worker as the others see it; it has no id yet. `device` is its kind unless the settings name one.
Worker describe(const JobSettings& settings, std::string_view device);

}  // namespace isochron
