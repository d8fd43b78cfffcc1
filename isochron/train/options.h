// What a training run is made of. Every option of it is an option of `isochron train`, spelt with dashes, and a key of
// its configuration file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isochron/core/deal/deal.h"
#include "isochron/core/names.h"
#include "isochron/core/options.h"
#include "isochron/core/rate/decay.h"
#include "isochron/engine/job.h"

namespace isochron::train {

enum class SampleLengths : std::uint8_t {
  kFixed,      // windows of `context` tokens
  kDocuments,  // documents, of up to `context` tokens
};

inline constexpr Names<SampleLengths, 2> kSampleLengthsNames{
    {{SampleLengths::kFixed, "fixed"}, {SampleLengths::kDocuments, "documents"}}};

struct Options {
  JobOptions job;  // global batch, policy, learning-rate rule, this worker's bounds, …

  std::string model = "cnn";                      // for model::make_model
  std::string dataset = "fashion-mnist";          // of data::dataset_names()
  std::filesystem::path data = "data";            // folder of the datasets
  std::int64_t context = 256;                     // tokens of a sample, for datasets of tokens
  SampleLengths lengths = SampleLengths::kFixed;  // for datasets of tokens
  std::string cost = "linear";                    // of a document: "count" (all alike), or for parse_length_cost
  Collation collate = Collation::kPacked;         // of documents
  bool augment = true;                            // what is customary for the dataset; false: normalisation alone
  std::int64_t train_samples = 0;                 // use only the first so many; 0: all
  std::int64_t test_samples = 0;                  // likewise

  std::int64_t epochs = 1;  // the run ends after so many
  std::int64_t steps = 0;   // or after so many steps; 0: no limit

  std::string optimizer = "sgd";  // for make_optimizer
  double learning_rate = 0.05;
  double momentum = 0.9;  // sgd
  double weight_decay = 0.0;
  Decay schedule = Decay::kConstant;
  std::int64_t warmup = 0;      // of the schedule, in steps; 0 where the learning-rate rule has a warm-up of its own
  double step_factor = 0.1;     // schedule step: the rate is multiplied by this …
  std::int64_t step_every = 0;  // … after every so many steps; 0: a third of the run

  std::int64_t threads = 1;       // LibTorch's per worker; 0: as it likes
  std::int64_t memory_limit = 0;  // bytes that this process may take; 0: no limit
  std::string device = "cpu";     // cpu, cuda, cuda:N, auto (a GPU if there is one)

  std::filesystem::path checkpoints;  // folder; empty: none are written
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end of every epoch and when stopped
  std::int64_t keep = 3;              // checkpoints
  std::string resume;                 // "": start anew; "auto": the newest of the folder if any; or a file

  // Throws std::invalid_argument naming the option, the value and what is permitted.
  void validate() const;

  // The schedule of the learning rate over a run of `total_steps`.
  DecayOptions decay(std::int64_t total_steps) const;
};

// The options of a run besides those of its job (job_options()), bound to `options`, which must outlive them.
std::vector<Option> run_options(Options& options);

}  // namespace isochron::train
