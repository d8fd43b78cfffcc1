#include "isochron/view/curve_learner.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/telemetry.h"

namespace isochron::view {

void CurveLearner::observe(std::size_t place, double batch, double seconds) {
  if (!(batch > 0.0 && seconds >= kShortestStep && seconds <= kLongestStep)) {
    return;
  }
  tracks_.resize(std::max(tracks_.size(), place + 1));
  Track& track = tracks_[place];
  const double log_seconds = std::log(seconds);
  if (track.last_batch > 0.0) {
    const double change = log_seconds - track.last_log_seconds;
    if (batch == track.last_batch) {
      constexpr double kMemory = 0.9;  // half the squared difference of two readings is their variance
      track.noise = std::max(1e-8, kMemory * track.noise + (1.0 - kMemory) * 0.5 * std::min(change * change, 0.25));
    } else {
      track.evidence.weigh(grid_, track.last_batch, batch, change, track.noise);
    }
  }
  track.smallest = track.last_batch > 0.0 ? std::min(track.smallest, batch) : batch;
  track.largest = std::max(track.largest, batch);
  track.last_batch = batch;
  track.last_log_seconds = log_seconds;
  track.recent[track.seen++ % kRecent] = {.batch = batch, .seconds = seconds};
}

std::vector<std::vector<Curve::Point>> CurveLearner::curves(const std::vector<std::string>& kinds) const {
  std::vector<std::vector<Curve::Point>> curves(kinds.size());
  std::vector<std::size_t> places;
  std::vector<const ShapeEvidence*> evidence;
  std::vector<const std::string*> their_kinds;
  for (std::size_t i = 0; i < std::min(tracks_.size(), kinds.size()); ++i) {
    if (tracks_[i].seen > 0) {
      places.push_back(i);
      evidence.push_back(&tracks_[i].evidence);
      their_kinds.push_back(&kinds[i]);
    }
  }
  const std::vector<std::size_t> shapes = choose_shapes(evidence, their_kinds);
  for (std::size_t i = 0; i < places.size(); ++i) {
    curves[places[i]] = draw(tracks_[places[i]], grid_[shapes[i]]);
  }
  return curves;
}

std::vector<Curve::Point> CurveLearner::draw(const Track& track, const Shape& shape) const {
  const std::size_t count = std::min(track.seen, kRecent);
  std::vector<double> scales(count);
  std::ranges::transform(
      track.recent.begin(),
      track.recent.begin() + static_cast<std::ptrdiff_t>(count),
      scales.begin(),
      [&](const Curve::Point& point) { return point.seconds / shape(point.batch); });
  const auto middle = scales.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::ranges::nth_element(scales, middle);
  const Curve curve = shape.curve(*middle);
  std::vector<double> batches{std::max(1.0, 0.5 * track.smallest), 1.25 * track.largest};
  if (shape.plateau > batches[0] && shape.plateau < batches[1]) {
    batches.insert(batches.begin() + 1, shape.plateau);
  }
  std::vector<Curve::Point> points(batches.size());
  std::ranges::transform(batches, points.begin(), [&](double batch) {
    return Curve::Point{.batch = batch, .seconds = curve.seconds(batch)};
  });
  return points;
}

}  // namespace isochron::view
