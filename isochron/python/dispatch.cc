#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/dispatch/layout.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/core/rate/rate.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

void bind_assignment(nb::module_& module) {
  nb::class_<Assignment>(module, "Assignment", "What a worker does next.")
      .def_ro("barrier", &Assignment::barrier)
      .def_ro("first", &Assignment::first)
      .def_ro("last", &Assignment::last)
      .def_prop_ro("batch", &Assignment::batch)
      .def_ro("round_samples", &Assignment::round_samples)
      .def_ro("decision", &Assignment::decision)
      .def_ro("stopping", &Assignment::stopping)
      .def_ro("stop_signal", &Assignment::stop_signal)
      .def_prop_ro("controller", [](const Assignment& self) {
        return nb::bytes(self.controller.data(), self.controller.size());
      });
}

void bind_failure(nb::module_& module) {
  nb::class_<Failure>(module, "Failure", "Why somebody ends the job.")
      .def_ro("kind", &Failure::kind)
      .def_ro("text", &Failure::text)
      .def_ro("ranks", &Failure::ranks)
      .def_ro("hosts", &Failure::hosts);
}

void bind_layout(nb::module_& module) {
  nb::class_<Strip>(module, "Strip", "Parameters of one group and type of number, end to end.")
      .def_ro("group", &Strip::group)
      .def_ro("type", &Strip::type)
      .def_ro("width", &Strip::width)
      .def_ro("elements", &Strip::elements)
      .def_prop_ro("bytes", &Strip::bytes);
  nb::class_<ParameterSlot>(module, "ParameterSlot", "Where a parameter lies.")
      .def_ro("strip", &ParameterSlot::strip)
      .def_ro("first", &ParameterSlot::first)
      .def_ro("last", &ParameterSlot::last);
  nb::class_<Chunk>(module, "Chunk", "What of a strip a server holds.")
      .def_ro("server", &Chunk::server)
      .def_ro("strip", &Chunk::strip)
      .def_ro("first", &Chunk::first)
      .def_ro("last", &Chunk::last);
  nb::class_<ParameterLayout>(module, "ParameterLayout", "Which part of the parameters lies on which server.")
      .def_ro("strips", &ParameterLayout::strips)
      .def_ro("slots", &ParameterLayout::slots)
      .def_ro("chunks", &ParameterLayout::chunks)
      .def(
          "chunks_on",
          [](const ParameterLayout& self, int server) {
            std::vector<Chunk> chunks;
            for (const std::size_t chunk : self.chunks_on(server)) {
              chunks.push_back(self.chunks[chunk]);
            }
            return chunks;
          },
          nb::arg("server"))
      .def("server_bytes", &ParameterLayout::server_bytes, nb::arg("server"));
  module.def(
      "lay_out",
      [](const std::vector<std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>>& groups, int servers) {
        std::vector<ParameterSize> parameters;
        for (std::size_t group = 0; group < groups.size(); ++group) {
          for (const auto& [type, width, elements] : groups[group]) {
            parameters.push_back({.group = group, .type = type, .width = width, .elements = elements});
          }
        }
        return lay_out(parameters, servers, kWholeShares);
      },
      nb::arg("groups"),
      nb::arg("servers"),
      "`groups` of the optimizer; of every parameter the type of its numbers, their width in bytes, how many.");
}

}  // namespace

void bind_dispatch(nb::module_& module) {
  bind_assignment(module);
  bind_failure(module);
  bind_layout(module);
  module.def(
      "asynchronous_momentum",
      &asynchronous_momentum,
      nb::arg("momentum"),
      nb::arg("workers"),
      "The momentum that together with what asynchronous workers add is the one that was asked for.");
}

}  // namespace isochron::python
