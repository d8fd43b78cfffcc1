// Samples per second of augmented CIFAR-10-like images (a file of 10,000 records, 128 of every 512 samples).
//
//   inline     every sample is read and augmented when the batch is asked for
//   together   one thread helps the caller, nothing is prepared: the cost of handing samples over
//   prepared   the time on the critical path if the training step is long enough to prepare the next one
//   resized    the same, but the slice moves by 16 samples every step: an eighth of the batch was not planned
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "isochron/core/random/random.h"
#include "isochron/data/augment.h"
#include "isochron/data/cifar.h"
#include "isochron/data/prefetcher.h"
#include "isochron/data/sample_stream.h"

namespace isochron::data {
namespace {

constexpr std::int64_t kSamples = 10'000;
constexpr std::int64_t kGlobalBatch = 512;
constexpr std::int64_t kBatch = 128;
constexpr std::int64_t kMove = 16;

/// A dataset on disk for as long as this lives.
class Disk {
 public:
  Disk() : file_(std::filesystem::temp_directory_path() / "isochron_data_benchmark.bin") {
    Random random({1});
    std::string records(kSamples * 3073, '\0');
    for (std::size_t i = 0; i < records.size(); ++i) {
      records[i] = static_cast<char>(i % 3073 == 0 ? random.below(10) : random.next() & 0xffU);
    }
    std::ofstream(file_, std::ios::binary) << records;
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() { std::filesystem::remove(file_); }

  [[nodiscard]] SampleStream stream() const {
    const std::shared_ptr<const Dataset> dataset = open_cifar(std::vector{file_}, Cifar::k10);
    const AugmentOptions options{
        .flip = true, .crop_padding = 4, .mean = {0.4914, 0.4822, 0.4465}, .deviation = {0.2470, 0.2435, 0.2616}};
    return {dataset, {.dataset_size = kSamples, .global_batch = kGlobalBatch}, Augment(dataset->shape(), options)};
  }

 private:
  std::filesystem::path file_;
};

/// Takes batch after batch and times that alone; `prepare` plans the next batch and waits until it is there.
void take_batches(benchmark::State& state, std::int64_t threads, bool prepare, std::int64_t move) {
  const Disk disk;
  const SampleStream stream = disk.stream();
  std::atomic<std::int64_t> fetched = 0;
  const auto fetch = [&](std::int64_t position, std::span<std::byte> out) {
    const std::int64_t label = stream.fetch(position, out);
    ++fetched;
    return label;
  };
  Prefetcher prefetcher(fetch, stream.sample_bytes(), {.threads = threads, .capacity = 2 * kBatch});
  std::vector<std::byte> samples(static_cast<std::size_t>(kBatch * stream.sample_bytes()));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(kBatch));
  std::int64_t start = 0;
  while (state.KeepRunning()) {
    if (prepare) {
      const std::int64_t before = fetched;
      prefetcher.plan(std::vector<Interval>{{.first = start, .last = start + kBatch}});
      while (fetched < before + kBatch) {
        std::this_thread::yield();
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    prefetcher.take({.first = start + move, .last = start + move + kBatch}, samples, labels);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    start += kGlobalBatch;
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}

BENCHMARK_CAPTURE(take_batches, inline, 0, false, 0)->UseManualTime();
BENCHMARK_CAPTURE(take_batches, together, 1, false, 0)->UseManualTime();
BENCHMARK_CAPTURE(take_batches, prepared, 1, true, 0)->UseManualTime();
BENCHMARK_CAPTURE(take_batches, resized, 1, true, kMove)->UseManualTime();

}  // namespace
}  // namespace isochron::data

BENCHMARK_MAIN();
