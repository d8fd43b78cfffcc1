// What the workers of a schedule train on: a dataset or a stream, dealt by count or by cost, and other data between.
#include "tests/replica/schedule.h"

namespace isochron {

void Schedule::draw_data(std::uint64_t seed) {
  const auto batch = static_cast<std::size_t>(options_.global_batch);
  for (Data& data : data_) {
    const std::size_t steps = below(200) == 0 ? 80 : 4;  // some are long enough for ceilings to rise again
    data.size = options_.global_batch + static_cast<std::int64_t>(below(steps * batch));
    data.stream = below(5) == 0;
  }
  Random kinds({seed, 0x64617461});
  const bool in_rounds = options_.sync == Sync::kLocal;
  by_cost_ = !in_rounds && kinds.below(3) == 0;
  arriving_ = by_cost_ && (data().stream || kinds.below(2) == 0);
  two_ = !by_cost_ && kinds.below(2) == 0;
  granular_ = !by_cost_ && !in_rounds && kinds.below(2) == 0;
  cost_ = {
      .collation = kinds.below(2) == 0 ? Collation::kPacked : Collation::kPadded,
      .learns_squares = kinds.below(2) == 0,
      .dataset_size = data().stream ? 0 : data().size};
}

void Schedule::open(Replica& replica) const {
  if (arriving_) {
    replica.open(cost_);
  } else if (by_cost_) {
    replica.open(SampleWorks{
        .works = works(0, 0, data().size), .collation = cost_.collation, .learns_squares = cost_.learns_squares});
  } else if (data().stream) {
    replica.open_stream();
  } else {
    replica.open(data().size);
  }
}

/// Some samples cost nothing, and some a hundred times as much as others.
std::vector<float> Schedule::works(std::int64_t epoch, std::int64_t first, std::int64_t count) const {
  std::vector<float> works;
  for (std::int64_t i = first; i < first + count; ++i) {
    Random random({options_.seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(i)});
    works.push_back(static_cast<float>(random.below(3) * random.below(3) * random.below(50)));
  }
  return works;
}

const StepPlan& Schedule::plan(Replica& replica) const {
  const std::int64_t left = data().size - replica.position();
  std::int64_t samples = std::min(left, replica.round_steps() * options_.global_batch);
  if (options_.last_batch == LastBatch::kDrop) {
    samples -= samples % options_.global_batch;
  }
  return arriving_ ? replica.plan_arrived(works(replica.epoch(), replica.position(), samples))
                   : replica.plan(data().stream ? samples : 0);
}

void Schedule::use(Node& node, bool learn) const {
  const StepPlan& plan = node.replica.plan_under_way();
  // Every replica applies the sum over all slices, as after an all-reduce of what each worker computed.
  for (const auto& other : nodes_) {
    const StepPlan& part = other->replica.plan_under_way();
    for (const std::int64_t position : part.positions(part.mine)) {
      const std::int64_t sample = data().stream ? position : node.replica.sampler().sample_at(position);
      const std::uint64_t gradient = learn ? 1 : 0;
      node.model.sum +=
          gradient * mix64(static_cast<std::uint64_t>(sample)) * static_cast<std::uint64_t>(plan.epoch + 1);
      ++node.model.uses[{{present_, plan.epoch}, sample}];
    }
  }
}

void Schedule::leave_epoch_early() {
  note("epoch left early");
  for (const auto& node : nodes_) {
    node->model.left_early[{present_, node->replica.epoch()}] = node->replica.position();
    node->replica.end_epoch();
    require(node->replica.position() == 0, "an epoch that was left goes on");
  }
}

void Schedule::turn_to_other_data() {
  note("other data");
  Data& from = data_[present_];
  present_ = 1 - present_;
  std::vector<State> places;
  for (const auto& node : nodes_) {
    places.push_back(node->replica.change_data(data().stream ? 0 : data().size, data().place));
    require(same_state(places.front(), places.back()), "places in the data differ");
  }
  from.place = places.front();
}

bool Schedule::epoch_is_over() const {
  const std::int64_t left = data().size - nodes_.front()->replica.position();
  return data().stream && (left == 0 || (options_.last_batch == LastBatch::kDrop && left < options_.global_batch));
}

std::int64_t Schedule::finished_epochs(std::size_t which) const {
  if (which == present_) {
    return nodes_.front()->replica.epoch();
  }
  return data_[which].place ? static_cast<std::int64_t>(data_[which].place->numbers.at("epoch").at(0)) : 0;
}

}  // namespace isochron
