#include "isochron/engine/async/words.h"

namespace isochron {

void FreeWords::exchange(StateExchange& state) {
  state.field("finished", finished);
  state.field("batch", batch);
  state.field("start", start);
  state.field("seconds", seconds);
  state.field("compute_seconds", compute_seconds);
  state.field("waited", waited);
  state.field("cpu", cpu);
  state.field("memory", memory);
  state.field("warm", warm);
  state.field("loss", loss);
  state.field("rate_factor", rate_factor);
  state.field("staleness", staleness);
  state.field("trains", trains);
  state.field("stop", stop);
  state.field("numbers", numbers);
}

void NextWords::exchange(StateExchange& state) {
  state.field("meet", meet);
  state.field("first", first);
  state.field("last", last);
  state.field("iteration", iteration);
  state.field("lead", lead);
  state.field("round_samples", round_samples);
  state.field("batch_sizes", batch_sizes);
  state.field("rate_factor", rate_factor);
  state.field("reason", reason);
  state.field("news", news);
  state.field("stopping", stopping);
  state.field("stop_signal", stop_signal);
  state.field("numbers", numbers);
}

}  // namespace isochron
