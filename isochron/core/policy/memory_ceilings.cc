#include "isochron/core/policy/memory_ceilings.h"

#include <algorithm>

namespace isochron {
namespace {

constexpr std::int64_t kFirstWait = 50;
constexpr std::int64_t kLongestWait = 3200;
constexpr std::int64_t kStep = 8;  // the ceiling moves by this part of itself

}  // namespace

void MemoryCeilings::Ceiling::exchange(StateExchange& state) {
  state.field("worker", worker);
  state.field("batch", batch);
  state.field("wait", wait);
  state.field("next_raise", next_raise);
}

std::int64_t MemoryCeilings::below(std::int64_t batch) {
  return std::max<std::int64_t>(std::min(batch - 1, batch / kStep * (kStep - 1) + batch % kStep), 1);
}

void MemoryCeilings::failed(WorkerId worker, std::int64_t batch, std::int64_t step) {
  auto found = std::ranges::find(ceilings_, worker, &Ceiling::worker);
  if (found == ceilings_.end()) {
    ceilings_.push_back({.worker = worker, .wait = kFirstWait / 2});
    found = ceilings_.end() - 1;
  }
  found->batch = below(batch);
  found->wait = std::min(found->wait * 2, kLongestWait);
  found->next_raise = step + found->wait;
}

void MemoryCeilings::forget(WorkerId worker) {
  std::erase_if(ceilings_, [worker](const Ceiling& ceiling) { return ceiling.worker == worker; });
}

bool MemoryCeilings::give_up(std::int64_t step) {
  if (ceilings_.empty() || given_up_at_ == step) {
    return false;
  }
  ceilings_.clear();
  given_up_at_ = step;
  return true;
}

bool MemoryCeilings::raise(std::int64_t step, std::int64_t highest) {
  bool raised = false;
  for (Ceiling& ceiling : ceilings_) {
    if (step >= ceiling.next_raise) {
      ceiling.batch += std::max<std::int64_t>(ceiling.batch / kStep, 1);
      ceiling.next_raise = step + ceiling.wait;
      raised = true;
    }
  }
  std::erase_if(ceilings_, [highest](const Ceiling& ceiling) { return ceiling.batch >= highest; });
  return raised;
}

std::int64_t MemoryCeilings::limit(WorkerId worker, std::int64_t least, std::int64_t limit) const {
  const auto found = std::ranges::find(ceilings_, worker, &Ceiling::worker);
  return found == ceilings_.end() ? limit : std::max(std::min(found->batch, limit), least);
}

void MemoryCeilings::exchange(StateExchange& state) {
  state.parts("ceilings", ceilings_);
  state.field("given_up_at", given_up_at_);
}

}  // namespace isochron
