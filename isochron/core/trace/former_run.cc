#include "isochron/core/trace/former_run.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/error.h"
#include "isochron/core/replica/progress.h"

namespace isochron {

void FormerSpeed::exchange(StateExchange& state) {
  state.field("name", name);
  state.field("samples_per_second", samples_per_second);
}

void FormerRun::add(const RunHeader& header) {
  for (const RunHeader::Member& member : header.workers) {
    names_[member.id] = member.name;
  }
}

void FormerRun::add(const StepRecord& record) {
  std::ranges::for_each(record.workers, [this](const WorkerStep& step) { add(step); });
}

void FormerRun::add(const UpdateRecord& record) {
  add(record.worker);
}

void FormerRun::add(const EventRecord& record) {
  if (is(record, Event::kJoin)) {
    names_[record.worker] = record.words;
  }
}

void FormerRun::add(const WorkerStep& step) {
  const double speed = static_cast<double>(step.batch) / step.compute_seconds;
  if (step.batch > 0 && step.compute_seconds > 0.0 && std::isfinite(speed)) {
    std::deque<double>& last = last_[step.id];
    last.push_back(speed);
    if (last.size() > kFormerSteps) {
      last.pop_front();
    }
  }
}

std::vector<FormerSpeed> FormerRun::speeds() const {
  std::map<std::string, double> by_name;  // a worker that came again has another id
  for (const auto& [id, last] : last_) {
    std::vector<double> sorted(last.begin(), last.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    const auto name = names_.find(id);
    by_name[name_of({.id = id, .name = name == names_.end() ? std::string() : name->second})] = *middle;
  }
  std::vector<FormerSpeed> speeds;
  speeds.reserve(by_name.size());
  for (const auto& [name, speed] : by_name) {
    speeds.push_back({.name = name, .samples_per_second = speed});
  }
  return speeds;
}

void take_over(std::span<const FormerSpeed> speeds, std::span<Worker> workers) {
  std::string theirs;
  double slowest = 0.0;
  bool known = false;
  for (const FormerSpeed& speed : speeds) {
    theirs += (theirs.empty() ? "" : ", ") + speed.name;
    slowest = slowest > 0.0 ? std::min(slowest, speed.samples_per_second) : speed.samples_per_second;
  }
  std::string ours;
  for (Worker& worker : workers) {
    const std::string name = name_of(worker);
    const auto speed = std::ranges::find(speeds, name, &FormerSpeed::name);
    known = known || speed != speeds.end();
    worker.former_speed = speed != speeds.end() ? speed->samples_per_second : slowest;
    ours += (ours.empty() ? "" : ", ") + name;
  }
  require(
      known,
      "start_from",
      std::string_view("a log of " + (theirs.empty() ? "nobody's steps" : theirs)),
      "a run log with steps of at least one of this job's workers: " + ours);
}

}  // namespace isochron
