#include "isochron/engine/job_datasets.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::string_view kPlaces = "datasets";           // of others than the first, each with its number
constexpr std::string_view kPresent = "datasets.present";  // the number of the one that was trained on

std::size_t present_of(const State& saved) {
  const auto found = saved.numbers.find(kPresent);
  return found == saved.numbers.end() ? 0 : static_cast<std::size_t>(found->second.at(0));
}

// What a replica understands, and the places of the other datasets.
std::pair<State, std::map<std::size_t, State>> split(State saved) {
  State others = saved.part(kPlaces);
  saved.put(kPlaces, {});
  others.numbers.erase("present");
  std::map<std::size_t, State> places;
  for (const auto& [name, values] : others.numbers) {
    const std::string number = name.substr(0, name.find('.'));
    if (const std::size_t dataset = std::stoul(number); !places.contains(dataset)) {
      places.emplace(dataset, others.part(number));
    }
  }
  return {std::move(saved), std::move(places)};
}

// The first and the last sample, as they are stored.
std::vector<std::byte> ends_of(const data::Dataset& dataset) {
  const auto bytes = static_cast<std::size_t>(dataset.shape().bytes());
  std::vector<std::byte> ends(2 * bytes);
  const std::int64_t labels[] = {
      dataset.read(0, std::span(ends).first(bytes)), dataset.read(dataset.size() - 1, std::span(ends).last(bytes))};
  const auto more = std::as_bytes(std::span(labels));
  ends.insert(ends.end(), more.begin(), more.end());
  return ends;
}

// A job would else go on in its place of other data.
void require_same(const data::Dataset& known, const data::Dataset& other) {
  if (&known != &other && !(known.shape() == other.shape() && ends_of(known) == ends_of(other))) {
    throw std::invalid_argument(
        "loader() with a second dataset of " + std::to_string(other.size()) +
        " samples, whose first or last one differs from that of the first; permitted: LoaderOptions::name for one of "
        "them, if it is other data");
  }
}

bool is_same(const JobDatasets::Data& data, const data::Dataset& dataset, const std::string& name) {
  const data::Dataset& known = *data.dataset;
  if (data.loader.name != name || (name.empty() && typeid(known) != typeid(dataset))) {
    return false;
  }
  if (!name.empty() && known.size() != dataset.size()) {
    throw std::invalid_argument(
        "the size of dataset '" + name + "' is " + std::to_string(dataset.size()) +
        "; permitted: what it was before, " + std::to_string(known.size()));
  }
  return known.size() == dataset.size();
}

}  // namespace

void JobDatasets::check(const data::Dataset& dataset, const LoaderOptions& loader) const {
  const bool in_rounds = options_.sync == Sync::kLocal;
  if (in_rounds && !dataset.lengths().empty()) {
    throw std::invalid_argument("the dataset has lengths of its samples; permitted: without them with sync 'local'");
  }
  if (data_.empty()) {
    return;
  }
  if (in_rounds) {
    throw std::invalid_argument("loader() with a second dataset; with sync 'local' a job trains on one");
  }
  if (replica_.by_cost() || (loader.cost && !dataset.lengths().empty())) {
    throw std::invalid_argument("loader() with a second dataset; a job that deals by cost trains on one");
  }
}

std::size_t JobDatasets::add(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  const auto known = std::ranges::find_if(data_, [&](const Data& one) { return is_same(one, *dataset, loader.name); });
  if (known != data_.end()) {
    if (loader.name.empty()) {
      require_same(*known->dataset, *dataset);
    }
    if (known->dataset != dataset) {
      known->dataset = dataset;
      known->source = make_source(*known);
    }
    return static_cast<std::size_t>(known - data_.begin());
  }
  check(*dataset, loader);
  Data data{.dataset = dataset, .loader = loader, .source = nullptr, .place = std::nullopt};
  data.source = make_source(data);
  if (const auto saved = saved_places_.extract(data_.size())) {
    data.place = saved.mapped();
  }
  data_.push_back(std::move(data));
  if (data_.size() == 1) {
    try {
      open_first();
    } catch (...) {
      data_.clear();
      throw;
    }
  }
  return data_.size() - 1;
}

std::unique_ptr<BatchSource> JobDatasets::make_source(const Data& data) const {
  const SamplerOptions order{
      .dataset_size = data.dataset->size(),
      .global_batch = options_.global_batch,
      .seed = options_.seed,
      .last_batch = options_.last_batch};
  return std::make_unique<BatchSource>(
      data.dataset,
      order,
      data.loader,
      data::PrefetchOptions{.threads = options_.prefetch_threads, .capacity = 0},
      options_.device);
}

void JobDatasets::open_first() {
  const data::Dataset& dataset = *data_.front().dataset;
  const LoaderOptions& loader = data_.front().loader;
  if (dataset.lengths().empty()) {
    replica_.open(dataset.size());
    return;
  }
  if (loader.collation == Collation::kPacked && replica_.chunk_size() > 0) {
    throw std::invalid_argument(
        "micro_batch is " + std::to_string(replica_.chunk_size()) +
        " with packed documents; permitted: 0, or padded ones");
  }
  if (!loader.cost) {
    replica_.open(dataset.size());
    return;
  }
  const LengthCost& cost = *loader.cost;
  SampleWorks works{.works = {}, .collation = loader.collation, .learns_squares = cost.learned};
  works.works.reserve(dataset.lengths().size());
  for (const std::int32_t length : dataset.lengths()) {
    works.works.push_back(static_cast<float>(cost.learned ? length : cost.work(length)));
  }
  replica_.open(std::move(works));
}

void JobDatasets::select(std::size_t number) {
  if (number != selected_) {
    data_[selected_].place = replica_.change_data(data_[number].dataset->size(), data_[number].place);
    selected_ = number;
  }
}

std::int64_t JobDatasets::epoch_of(std::size_t number) const {
  if (number == selected_ || number >= data_.size()) {
    return replica_.epoch();
  }
  const std::optional<State>& place = data_[number].place;
  return place ? static_cast<std::int64_t>(place->numbers.at("epoch").at(0)) : 0;
}

void JobDatasets::close() {
  for (Data& data : data_) {
    data.source.reset();
  }
}

void JobDatasets::add_places(State& state) const {
  std::map<std::size_t, State> places = saved_places_;
  for (std::size_t number = 1; number < data_.size(); ++number) {
    if (data_[number].place) {
      places[number] = *data_[number].place;
    }
  }
  for (const auto& [number, place] : places) {
    state.put(std::string(kPlaces) + '.' + std::to_string(number), place);
  }
}

State JobDatasets::state() {
  const std::size_t present = selected_;
  if (!data_.empty()) {
    select(0);
  }
  State state = replica_.state();
  add_places(state);
  if (present > 0) {
    state.numbers.emplace(kPresent, std::vector<double>{static_cast<double>(present)});
    select(present);
  }
  return state;
}

State JobDatasets::state_before_step() const {
  if (selected_ > 0) {
    throw Error("the job trains on another dataset than its first one");
  }
  State state = replica_.state_before_step();
  add_places(state);
  return state;
}

template <class Change>
void JobDatasets::change_places(const State& saved, const Change& change) {
  auto [replicas, places] = split(saved);
  const std::size_t present = selected_;
  if (!data_.empty()) {
    select(0);
  }
  try {
    change(replicas);
  } catch (...) {
    if (!data_.empty()) {
      select(present);
    }
    throw;
  }
  saved_places_ = std::move(places);
  for (std::size_t number = 1; number < data_.size(); ++number) {
    const auto place = saved_places_.extract(number);
    data_[number].place = place ? std::optional(place.mapped()) : std::nullopt;
  }
  if (!data_.empty()) {
    select(present);
  }
}

void JobDatasets::restore(const State& saved) {
  change_places(saved, [&](const State& state) { replica_.restore(state); });
}

std::vector<EventRecord> JobDatasets::roll_back(const State& saved, const std::string& reason, double now) {
  if (present_of(saved) != selected_) {
    throw Error(reason + ", and the last checkpoint is of another dataset");
  }
  std::vector<EventRecord> events;
  change_places(saved, [&](const State& state) { events = replica_.roll_back(state, reason, now); });
  return events;
}

}  // namespace isochron
