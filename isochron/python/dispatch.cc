#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/dispatch/coordinator.h"
#include "isochron/core/dispatch/dispatcher.h"
#include "isochron/core/dispatch/layout.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/core/dispatch/shard_ledger.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/sample/claims.h"
#include "isochron/python/bind.h"
#include "isochron/python/make_controller.h"
#include "isochron/python/state_bytes.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using Replies = std::vector<std::pair<int, Assignment>>;

Replies in_pairs(std::vector<Coordinator::Reply> replies) {
  Replies pairs;
  pairs.reserve(replies.size());
  for (Coordinator::Reply& reply : replies) {
    pairs.emplace_back(reply.rank, std::move(reply.assignment));
  }
  return pairs;
}

// A message that Python may make, send and read.
template <class Message>
nb::class_<Message> bind_message(nb::module_& module, const char* name, const char* about) {
  return nb::class_<Message>(module, name, about)
      .def(nb::init<>())
      .def(
          "encode",
          [](const Message& self) {
            const std::string bytes = encode(self);
            return nb::bytes(bytes.data(), bytes.size());
          })
      .def_static(
          "decode",
          [](const nb::bytes& bytes) { return decode<Message>(std::string_view(bytes.c_str(), bytes.size())); },
          nb::arg("bytes"));
}

void bind_report(nb::module_& module) {
  bind_message<IterationReport>(module, "IterationReport", "A worker is free; what there is to say of its iteration.")
      .def_rw("sequence", &IterationReport::sequence)
      .def_rw("finished", &IterationReport::finished)
      .def_rw("batch", &IterationReport::batch)
      .def_rw("start", &IterationReport::start)
      .def_rw("seconds", &IterationReport::seconds)
      .def_rw("compute_seconds", &IterationReport::compute_seconds)
      .def_rw("waited", &IterationReport::waited)
      .def_rw("usage", &IterationReport::usage)
      .def_rw("warm", &IterationReport::warm)
      .def_rw("loss", &IterationReport::loss)
      .def_rw("rate_factor", &IterationReport::rate_factor)
      .def_rw("staleness", &IterationReport::staleness)
      .def_rw("stop", &IterationReport::stop)
      .def_rw("non_finite", &IterationReport::non_finite);
}

void bind_assignment(nb::module_& module) {
  bind_message<Assignment>(module, "Assignment", "What a worker does next.")
      .def_ro("sequence", &Assignment::sequence)
      .def_ro("barrier", &Assignment::barrier)
      .def_rw("first", &Assignment::first)
      .def_ro("last", &Assignment::last)
      .def_prop_ro("batch", &Assignment::batch)
      .def_ro("iteration", &Assignment::iteration)
      .def_ro("lead", &Assignment::lead)
      .def_ro("round_samples", &Assignment::round_samples)
      .def_ro("decision", &Assignment::decision)
      .def_ro("records", &Assignment::records)
      .def_ro("stopping", &Assignment::stopping)
      .def_ro("stop_signal", &Assignment::stop_signal)
      .def_prop_ro("controller", [](const Assignment& self) {
        return nb::bytes(self.controller.data(), self.controller.size());
      });
}

void bind_headers(nb::module_& module) {
  bind_message<PushHeader>(module, "PushHeader", "Goes before the gradients of an iteration to every shard.")
      .def_prop_rw(
          "worker",
          [](const PushHeader& self) { return self.from.worker; },
          [](PushHeader& self, WorkerId worker) { self.from.worker = worker; })
      .def_prop_rw(
          "iteration",
          [](const PushHeader& self) { return self.from.iteration; },
          [](PushHeader& self, std::int64_t iteration) { self.from.iteration = iteration; })
      .def(
          "stand_for",
          [](PushHeader& self, const Assignment& assignment, std::int64_t epoch) {
            self.from.round = assignment.iteration;
            self.from.epoch = epoch;
            self.from.first = assignment.first;
            self.from.last = assignment.last;
            self.round_samples = assignment.round_samples;
          },
          nb::arg("assignment"),
          nb::arg("epoch"),
          "Which samples it is of.")
      .def_rw("weight", &PushHeader::weight)
      .def_rw("rate", &PushHeader::rate)
      .def_rw("skipped", &PushHeader::skipped)
      .def_prop_rw(
          "settings",
          [](const PushHeader& self) { return nb::bytes(self.settings.data(), self.settings.size()); },
          [](PushHeader& self, const nb::bytes& settings) { self.settings.assign(settings.c_str(), settings.size()); });
  bind_message<PullHeader>(module, "PullHeader", "Asks a shard for its values.")
      .def_rw("worker", &PullHeader::worker)
      .def_rw("iteration", &PullHeader::iteration)
      .def_rw("rounds", &PullHeader::rounds);
  bind_message<Failure>(module, "Failure", "Why somebody ends the job.")
      .def_rw("kind", &Failure::kind)
      .def_rw("text", &Failure::text)
      .def_rw("ranks", &Failure::ranks)
      .def_rw("hosts", &Failure::hosts);
}

void bind_coordinator(nb::module_& module) {
  nb::class_<Coordinator>(module, "Coordinator", "Says who computes what next, out of step; pure.")
      .def(
          "__init__",
          [](Coordinator* self,
             std::vector<Worker> workers,
             std::int64_t global_batch,
             std::optional<std::int64_t> bound,
             std::int64_t position,
             const nb::bytes& state,
             std::string policy,
             const std::string& rate,
             std::int64_t reference_batch,
             double warmup_steps) {
            std::vector<std::optional<WorkerId>> ids;
            ids.reserve(workers.size());
            for (const Worker& worker : workers) {
              ids.emplace_back(worker.id);
            }
            Controller controller = make_controller(
                std::move(workers), global_batch, std::move(policy), rate, reference_batch, warmup_steps);
            if (state.size() > 0) {
              controller.restore(from_bytes(state));
            }
            new (self) Coordinator(Dispatcher(std::move(controller), bound, ClaimPool(position)), ids);
          },
          nb::arg("workers"),
          nb::arg("global_batch"),
          nb::kw_only(),
          nb::arg("bound").none(),
          nb::arg("position") = 0,
          nb::arg("state") = nb::bytes("", 0),
          nb::arg("policy") = "isochron",
          nb::arg("rate") = "none",
          nb::arg("reference_batch") = 0,
          nb::arg("warmup_steps") = 0.0)
      .def(
          "open",
          [](Coordinator& self, std::int64_t epoch, std::int64_t end, std::int64_t next_record) {
            return in_pairs(self.open(epoch, end, next_record));
          },
          nb::arg("epoch"),
          nb::arg("end"),
          nb::arg("next_record"))
      .def(
          "hear",
          [](Coordinator& self, int rank, const IterationReport& report) { return in_pairs(self.hear(rank, report)); },
          nb::arg("rank"),
          nb::arg("report"))
      .def("leave", &Coordinator::leave, nb::arg("rank"))
      .def_prop_ro("late", &Coordinator::late)
      .def_prop_ro("missing", &Coordinator::missing)
      .def_prop_ro("non_finite", &Coordinator::non_finite);
}

void bind_shard(nb::module_& module) {
  nb::class_<ShardLedger> ledger(module, "ShardLedger", "What has become of the updates of a shard.");
  ledger
      .def(
          "__init__",
          [](ShardLedger* self, const std::string& push_rate) { new (self) ShardLedger(parse_push_rate(push_rate)); },
          nb::arg("push_rate"))
      .def("take", &ShardLedger::take, nb::arg("push"))
      .def(
          "pull",
          [](ShardLedger& self, const PullHeader& pull) {
            const std::optional<ShardLedger::Round> round = self.pull(pull);
            return round ? std::optional(std::pair(round->weight, round->rate)) : std::nullopt;
          },
          nb::arg("pull"),
          "The weight and the rate of the round that is to be applied before; None: there is none.")
      .def_prop_ro("updates", &ShardLedger::updates);
  nb::class_<ShardLedger::Taken>(module, "TakenPush", "What is to be done with an update.")
      .def_prop_ro("applies", [](const ShardLedger::Taken& self) { return self.action == ShardLedger::Action::kApply; })
      .def_prop_ro("adds", [](const ShardLedger::Taken& self) { return self.action == ShardLedger::Action::kAdd; })
      .def_ro("first", &ShardLedger::Taken::first)
      .def_ro("staleness", &ShardLedger::Taken::staleness)
      .def_ro("rate", &ShardLedger::Taken::rate)
      .def_ro("weight", &ShardLedger::Taken::weight);
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
  bind_report(module);
  bind_assignment(module);
  bind_headers(module);
  bind_coordinator(module);
  bind_shard(module);
  bind_layout(module);
  module.def(
      "push_factor",
      [](const std::string& rule,
         std::int64_t batch,
         std::int64_t global_batch,
         std::int64_t workers,
         std::int64_t staleness) {
        return push_factor(parse_push_rate(rule), batch, global_batch, workers, staleness);
      },
      nb::arg("rule"),
      nb::kw_only(),
      nb::arg("batch") = 1,
      nb::arg("global_batch") = 1,
      nb::arg("workers") = 1,
      nb::arg("staleness") = 0,
      "What an update's learning rate is multiplied with.");
  module.def(
      "asynchronous_momentum",
      &asynchronous_momentum,
      nb::arg("momentum"),
      nb::arg("workers"),
      "The momentum that together with what asynchronous workers add is the one that was asked for.");
}

}  // namespace isochron::python
