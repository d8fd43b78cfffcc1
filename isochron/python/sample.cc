#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/random/random.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/python/bind.h"
#include "isochron/python/state_bytes.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;

std::vector<Pair> to_pairs(const std::vector<Interval>& intervals) {
  std::vector<Pair> pairs;
  pairs.reserve(intervals.size());
  for (const Interval& interval : intervals) {
    pairs.emplace_back(interval.first, interval.last);
  }
  return pairs;
}

std::vector<std::int64_t> samples_between(const Sampler& sampler, std::int64_t first, std::int64_t last) {
  if (first < 0 || last < first || last > sampler.samples_per_epoch()) {
    throw std::invalid_argument(
        "positions are " + std::to_string(first) + " to " + std::to_string(last) + "; permitted: within 0 and " +
        std::to_string(sampler.samples_per_epoch()));
  }
  std::vector<std::int64_t> samples;
  samples.reserve(static_cast<std::size_t>(last - first));
  for (std::int64_t position = first; position < last; ++position) {
    samples.push_back(sampler.sample_at(position));
  }
  return samples;
}

void bind_sampler(nb::module_& module) {
  nb::class_<Sampler>(module, "Sampler", "Which samples each worker takes: a permutation of the dataset per epoch.")
      .def(
          "__init__",
          [](Sampler* self,
             std::int64_t dataset_size,
             std::int64_t global_batch,
             std::uint64_t seed,
             const std::string& last_batch) {
            new (self) Sampler(
                {.dataset_size = dataset_size,
                 .global_batch = global_batch,
                 .seed = seed,
                 .last_batch = parse_name(kLastBatchNames, "last_batch", last_batch)});
          },
          nb::arg("dataset_size"),
          nb::arg("global_batch"),
          nb::arg("seed") = 0,
          nb::arg("last_batch") = "keep")
      .def_prop_ro("epoch", [](const Sampler& self) { return self.state().epoch; })
      .def_prop_ro("position", [](const Sampler& self) { return self.state().position; })
      .def_prop_ro("steps_per_epoch", &Sampler::steps_per_epoch)
      .def_prop_ro("samples_per_epoch", &Sampler::samples_per_epoch)
      .def_prop_ro("step_size", &Sampler::step_size)
      .def(
          "slices",
          [](const Sampler& self, const std::vector<std::int64_t>& split) { return to_pairs(self.slices(split)); },
          nb::arg("batch_sizes"))
      .def("samples", &samples_between, nb::arg("first"), nb::arg("last"))
      .def("advance", &Sampler::advance)
      .def(
          "seek",
          [](Sampler& self, std::int64_t epoch, std::int64_t position) {
            self.restore({.seed = self.state().seed, .epoch = epoch, .position = position});
          },
          nb::arg("epoch"),
          nb::arg("position"));
}

void bind_ledger(nb::module_& module) {
  nb::class_<Ledger>(module, "Ledger", "Which positions of an epoch were used: proves each exactly once.")
      .def(nb::init<std::int64_t>(), nb::arg("size"))
      .def(
          "stage",
          [](Ledger& self, std::int64_t first, std::int64_t last, WorkerId worker) {
            self.stage({.positions = {.first = first, .last = last}, .worker = worker});
          },
          nb::arg("first"),
          nb::arg("last"),
          nb::arg("worker"))
      .def("commit", &Ledger::commit)
      .def_prop_ro("size", &Ledger::size)
      .def_prop_ro("used", &Ledger::used)
      .def_prop_ro("complete", &Ledger::complete)
      .def_prop_ro("intervals", [](const Ledger& self) { return to_pairs(self.intervals()); })
      .def_prop_ro("gaps", [](const Ledger& self) { return to_pairs(self.gaps()); })
      .def_prop_ro(
          "duplicates",
          [](const Ledger& self) {
            std::vector<std::tuple<std::int64_t, std::int64_t, WorkerId>> uses;
            for (const Use& use : self.duplicates()) {
              uses.emplace_back(use.positions.first, use.positions.last, use.worker);
            }
            return uses;
          })
      .def("state", [](Ledger& self) { return to_bytes(save_state(self)); })
      .def("restore", [](Ledger& self, const nb::bytes& state) { restore_state(self, from_bytes(state)); });
}

}  // namespace

void bind_sample(nb::module_& module) {
  module.def(
      "deal",
      [](std::int64_t samples, const std::vector<std::int64_t>& split) { return deal(samples, split); },
      nb::arg("samples"),
      nb::arg("split"),
      "`samples` in proportion to `split`; they add up exactly.");
  module.def(
      "mix_key",
      [](const std::vector<std::uint64_t>& words) {
        std::uint64_t key = 0;
        for (const std::uint64_t word : words) {
          key = mix_key({key, word});
        }
        return key;
      },
      nb::arg("words"),
      "A 64-bit hash of numbers, the same on every platform.");
  bind_sampler(module);
  bind_ledger(module);
}

}  // namespace isochron::python
