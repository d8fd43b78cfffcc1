// Every sample exactly once, though the workers change in the middle of an epoch and one step fails.
//
// The sampler deals positions of a keyed permutation, the ledger keeps account. Both know nothing of the number of
// workers: a step is its first position and a split.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"

namespace {

std::vector<std::int64_t> split_of_step(int step) {
  if (step < 3) {
    return {48, 24, 24};
  }
  return {64, 32};  // worker 2 is gone; the global batch stays 96
}

}  // namespace

int main() {
  isochron::Sampler sampler({.dataset_size = 1000, .global_batch = 96, .seed = 7});
  isochron::Ledger ledger(sampler.samples_per_epoch());
  bool failed_once = false;

  for (int step = 0; sampler.state().epoch == 0;) {
    const auto slices = sampler.slices(split_of_step(step));
    for (std::size_t k = 0; k < slices.size(); ++k) {
      ledger.stage({.positions = slices[k], .worker = k});
    }
    if (step == 3 && !failed_once) {
      failed_once = true;
      ledger.discard();  // the step did not happen: it is dealt again
      std::printf("step %d failed at position %lld\n", step, static_cast<long long>(sampler.state().position));
      continue;
    }
    ledger.commit();
    sampler.advance();
    ++step;
  }

  std::printf(
      "used %lld of %lld samples, %zu gaps, %zu duplicates\n",
      static_cast<long long>(ledger.used()),
      static_cast<long long>(ledger.size()),
      ledger.gaps().size(),
      ledger.duplicates().size());
  return ledger.complete() ? EXIT_SUCCESS : EXIT_FAILURE;
}
