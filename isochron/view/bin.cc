#include "isochron/view/bin.h"

#include <algorithm>
#include <cstddef>

namespace isochron::view {

void Cell::merge(const Cell& other) {
  batch.merge(other.batch);
  compute.merge(other.compute);
  wait.merge(other.wait);
  exchange.merge(other.exchange);
  offset.merge(other.offset);
}

void Bin::merge(const Bin& next) {
  records += next.records;
  first_step = std::min(first_step, next.first_step);
  last_step = std::max(last_step, next.last_step);
  start = std::min(start, next.start);
  end = std::max(end, next.end);
  samples += next.samples;
  busy += next.busy;
  seconds.merge(next.seconds);
  rate.merge(next.rate);
  balance.merge(next.balance);
  utilization.merge(next.utilization);
  loss.merge(next.loss);
  cells.resize(std::max(cells.size(), next.cells.size()));
  for (std::size_t i = 0; i < next.cells.size(); ++i) {
    cells[i].merge(next.cells[i]);
  }
}

}  // namespace isochron::view
