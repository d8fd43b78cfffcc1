#include "isochron/server/session.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "isochron/core/dispatch/layout.h"
#include "isochron/core/error.h"
#include "isochron/core/job_settings.h"
#include "isochron/core/peer_error.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/replica/replica.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/python/bind.h"
#include "isochron/python/state_bytes.h"
#include "isochron/server/served_chunk.h"
#include "isochron/server/tcp_link.h"

namespace nb = nanobind;

namespace isochron::python {
namespace {

using namespace isochron::server;
using Array = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Milliseconds = std::chrono::milliseconds;

Space space_of(const Array& array) {
  return std::as_writable_bytes(std::span(array.data(), array.size()));
}

// For as long as the callee runs.
nb::object lent(Space bytes) {
  return nb::cast(Array(bytes.data(), {bytes.size()}, nb::handle()), nb::rv_policy::reference);
}

std::string text_of(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

nb::bytes bytes_of(const std::string& text) {
  return nb::bytes(text.data(), text.size());
}

std::vector<Peer> peers_of(const nb::handle& error) {
  std::vector<Peer> peers;
  const auto ranks = nb::cast<std::vector<int>>(nb::list(error.attr("ranks")));
  const auto hosts = nb::cast<std::vector<std::string>>(nb::list(error.attr("hosts")));
  peers.reserve(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    peers.push_back({.rank = ranks[i], .host = i < hosts.size() ? hosts[i] : ""});
  }
  return peers;
}

// Calls Python without holding its lock. A PeerError of Python's is one here.
template <class Call>
auto in_python(const Call& call) {
  const nb::gil_scoped_acquire lock;
  try {
    return call();
  } catch (const nb::python_error& error) {
    const auto errors = nb::module_::import_("isochron.errors");
    if (!nb::isinstance(error.value(), errors.attr("PeerError"))) {
      throw;
    }
    const auto text = nb::cast<std::string>(nb::str(error.value()));
    if (nb::isinstance(error.value(), errors.attr("TimeoutError"))) {
      throw TimeoutError(text, peers_of(error.value()));
    }
    throw PeerLostError(text, peers_of(error.value()));
  }
}

// The same in a thread of ours, where nobody would see Python's exception: the log has it whole.
template <class Call>
auto in_server(const Call& call) {
  const nb::gil_scoped_acquire lock;
  try {
    return call();
  } catch (const nb::python_error& error) {
    nb::module_::import_("logging").attr("getLogger")("isochron").attr("error")(error.what());
    const auto type = nb::cast<std::string>(error.type().attr("__name__"));
    throw Error(type + ": " + nb::cast<std::string>(nb::str(error.value())));
  }
}

// So that Ctrl-C ends a wait of the main thread.
void look_for_signals() {
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
}

// A chunk whose arithmetic is a Python object's (served.Updater).
class PythonChunk final : public ServedChunk {
 public:
  PythonChunk(nb::object updater, PushRate rule)
      : ServedChunk(rule), updater_(std::move(updater)), size_(nb::cast<std::size_t>(updater_.attr("size"))) {}
  ~PythonChunk() override {
    const nb::gil_scoped_acquire lock;
    updater_.reset();
    settings_.reset();
  }

  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] const nb::object& updater() const { return updater_; }

 protected:
  Values values() override {
    const auto copy = std::make_shared<std::vector<std::byte>>(size_);
    in_server([&] { updater_.attr("read")(lent(*copy)); });
    return {.bytes = *copy, .keeper = copy};
  }
  void step(Space gradient, double rate, const std::string& settings) override {
    in_server([&] { updater_.attr("step")(lent(gradient), parsed(settings), rate); });
  }
  void step_mean(double weight, double rate, const std::string& settings) override {
    in_server([&] { updater_.attr("step")(updater_.attr("take_mean")(weight), parsed(settings), rate); });
  }
  void add(Space gradient, double weight, bool first) override {
    in_server([&] { updater_.attr("add")(lent(gradient), weight, first); });
  }

 private:
  // They rarely change.
  nb::object parsed(const std::string& settings) {
    if (!settings_.is_valid() || settings != text_) {
      text_ = settings;
      settings_ = nb::module_::import_("json").attr("loads")(settings);
    }
    return settings_;
  }

  nb::object updater_;
  const std::size_t size_;
  std::string text_;
  nb::object settings_;
};

// The job of a framework (served.Owner).
class PythonOwner final : public SessionOwner {
 public:
  PythonOwner(nb::object owner, PushRate rule) : owner_(std::move(owner)), rule_(rule) {}

  std::vector<std::string> gather(const std::string& mine) override {
    return in_python([&] {
      std::vector<std::string> all;
      for (const nb::handle one : owner_.attr("gather")(bytes_of(mine))) {
        all.push_back(text_of(nb::cast<nb::bytes>(one)));
      }
      return all;
    });
  }
  bool agree(bool ok) override {
    return in_python([&] { return nb::cast<bool>(owner_.attr("agree")(ok)); });
  }
  void average(std::int64_t samples) override {
    in_python([&] { owner_.attr("average")(samples); });
  }
  std::unique_ptr<ServedChunk> serve(std::size_t chunk, Bytes values) override {
    std::vector<std::byte> copy(values.begin(), values.end());
    return in_python(
        [&] { return std::make_unique<PythonChunk>(owner_.attr("restore_chunk")(chunk, lent(copy)), rule_); });
  }
  // The thread keeps what Python knows of it from call to call.
  void start(ParameterServer& server) override {
    server.start([](const std::function<void()>& serve) {
      const nb::gil_scoped_acquire known;
      const nb::gil_scoped_release released;
      serve();
    });
  }
  void take_record(const UpdateRecord& record) override {
    in_python([&] { owner_.attr("take_record")(record); });
  }
  void warn(const std::string& words) override {
    in_python([&] { owner_.attr("warn")(words); });
  }

  void forget() { owner_.reset(); }

 private:
  nb::object owner_;
  const PushRate rule_;
};

// A session and what it borrows: the owner, and the arrays that values come into and gradients leave from.
class PythonSession {
 public:
  PythonSession(nb::object owner, SessionOptions options, Members members, DataPosition place)
      : push_rate_(options.push_rate),
        owner_(std::move(owner), options.push_rate),
        session_(std::make_unique<Session>(std::move(options), std::move(members), std::move(place), owner_)) {}
  PythonSession(const PythonSession&) = delete;
  PythonSession& operator=(const PythonSession&) = delete;
  ~PythonSession() {
    const nb::gil_scoped_release released;  // the server's thread may need it to come to its end
    session_.reset();
  }

  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }

  void begin(
      std::shared_ptr<TcpLink> link,
      const ParameterLayout& layout,
      std::vector<Array> values,
      const std::vector<nb::object>& updaters,
      const nb::bytes& state,
      std::vector<Worker> roster) {
    ParameterServer::Chunks chunks;
    const std::vector<std::size_t> mine = layout.chunks_on((*session_).members().rank);
    ISO_CHECK(mine.size() == updaters.size(), "a chunk without an updater");
    for (std::size_t i = 0; i < mine.size(); ++i) {
      chunks.emplace(mine[i], std::make_unique<PythonChunk>(updaters[i], push_rate_));
    }
    Controller controller = session_->make_controller(std::move(roster));
    if (state.size() > 0) {
      controller.restore(from_bytes(state));
    }
    values_ = std::move(values);
    std::vector<Space> spaces;
    spaces.reserve(values_.size());
    for (const Array& array : values_) {
      spaces.push_back(space_of(array));
    }
    link->watch(look_for_signals);
    const nb::gil_scoped_release released;
    session_->begin(std::move(link), layout, std::move(spaces), std::move(chunks), std::move(controller));
  }

  // All chunks at once.
  void push(double weight, const std::vector<nb::bytes>& settings, std::vector<Array> gradients) {
    std::vector<ParameterClient::StripRate> strips;
    std::vector<Space> spaces;
    for (std::size_t strip = 0; strip < settings.size(); ++strip) {
      strips.push_back({.settings = text_of(settings[strip])});
      spaces.push_back(space_of(gradients.at(strip)));
    }
    gradients_ = std::move(gradients);
    const nb::gil_scoped_release released;
    session_->begin_push(weight, strips);
    ParameterClient& client = session_->client();
    for (std::size_t chunk = 0; chunk < client.layout().chunks.size(); ++chunk) {
      const Bytes gradient = part_of(client.layout(), spaces, chunk);
      if (push_failure_) {
        client.keep(chunk, gradient);
        continue;
      }
      try {
        client.send(chunk, gradient);
      } catch (const PeerError&) {
        push_failure_ = std::current_exception();  // finish() says so, where the job can deal with it
      }
    }
  }
  void finish() {
    if (push_failure_) {
      std::rethrow_exception(std::exchange(push_failure_, nullptr));
    }
    session_->finish();
  }

  void take_up(std::vector<Worker> workers, int rank, std::shared_ptr<TcpLink> link) {
    const int trainers = static_cast<int>(workers.size());
    link->watch(look_for_signals);
    session_->take_up({.workers = std::move(workers), .rank = rank, .trainers = trainers}, std::move(link));
  }

  void close(bool orderly) {
    {
      const nb::gil_scoped_release released;
      session_->close(orderly);
    }
    owner_.forget();
  }

  // This rank's chunks, by their numbers; at a barrier.
  nb::dict updaters() {
    nb::dict found;
    if (const ParameterServer::Chunks* const chunks = session_->chunks()) {
      for (const auto& [number, chunk] : *chunks) {
        found[nb::int_(number)] = static_cast<const PythonChunk&>(*chunk).updater();
      }
    }
    return found;
  }

 private:
  const PushRate push_rate_;
  PythonOwner owner_;
  std::vector<Array> values_;
  std::vector<Array> gradients_;
  std::exception_ptr push_failure_;
  std::unique_ptr<Session> session_;
};

// As the package's own classes, which carry ranks and hosts.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  const auto set = [](const char* name, const PeerError& error) {
    const nb::object kind = nb::module_::import_("isochron.errors").attr(name);
    nb::list ranks;
    nb::list hosts;
    for (const Peer& peer : error.peers()) {
      ranks.append(peer.rank);
      hosts.append(peer.host);
    }
    PyErr_SetObject(kind.ptr(), kind(error.what(), ranks, hosts).ptr());
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const TimeoutError& error) {
    set("TimeoutError", error);
  } catch (const PeerLostError& error) {
    set("PeerLostError", error);
  } catch (const PeerError& error) {
    set("PeerError", error);
  } catch (const NonFiniteError& error) {
    const nb::object kind = nb::module_::import_("isochron.errors").attr("NonFiniteError");
    PyErr_SetObject(kind.ptr(), kind(error.what()).ptr());
  }
}

void bind_link(nb::module_& module) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<TcpLink>(module, "TcpLink", "Messages between workers, over sockets that others have opened.")
      .def(
          "__init__",
          [](TcpLink* self, int rank, const std::vector<std::string>& hosts, double timeout) {
            std::vector<Peer> peers;
            peers.reserve(hosts.size());
            for (const std::string& host : hosts) {
              peers.push_back({.rank = static_cast<int>(peers.size()), .host = host});
            }
            new (self) TcpLink(rank, std::move(peers), Milliseconds(static_cast<std::int64_t>(1e3 * timeout)));
          },
          nb::arg("rank"),
          nb::arg("hosts"),
          nb::arg("timeout"))
      .def(
          "connect",
          [](TcpLink& self, int rank, int descriptor, const nb::bytes& outgoing, const nb::bytes& incoming) {
            self.connect(rank, descriptor, {.outgoing = text_of(outgoing), .incoming = text_of(incoming)});
          },
          nb::arg("rank"),
          nb::arg("descriptor"),
          nb::arg("outgoing"),
          nb::arg("incoming"),
          "Owns the descriptor from then on. The keys, 32 bytes each, are of this connection alone.")
      .def("lose", &TcpLink::lose, nb::arg("rank"), nb::arg("why"), Released())
      .def(
          "fail",
          [](TcpLink& self,
             std::string kind,
             std::string text,
             std::vector<std::int64_t> ranks,
             std::vector<std::string> hosts) {
            self.fail(
                {.kind = std::move(kind),
                 .text = std::move(text),
                 .ranks = std::move(ranks),
                 .hosts = std::move(hosts)});
          },
          nb::arg("kind"),
          nb::arg("text"),
          nb::arg("ranks"),
          nb::arg("hosts"),
          Released(),
          "Ends it on all workers, with this reason.")
      .def_prop_ro("failure", &TcpLink::failure, "Why it ended; None: it has not.")
      .def("leave", &TcpLink::leave, nb::arg("orderly"), Released());
}

void bind_steps(nb::class_<PythonSession>& session) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  session
      .def(
          "begin",
          &PythonSession::begin,
          nb::arg("link"),
          nb::arg("layout"),
          nb::arg("values"),
          nb::arg("updaters"),
          nb::arg("state"),
          nb::arg("workers"))
      .def(
          "enter", [](PythonSession& self) { self->enter(self->place().samples_per_epoch); }, Released())
      .def(
          "next", [](PythonSession& self, std::int64_t stop) { return self->next(stop); }, nb::arg("stop"), Released())
      .def(
          "start_pull", [](PythonSession& self) { self->start_pull(); }, Released())
      .def(
          "finish_pull", [](PythonSession& self) { self->finish_pull(); }, Released())
      .def(
          "computed",
          [](PythonSession& self, double loss, const MachineUsage& usage, bool warm) {
            self->computed();
            IterationReport& report = self->report();
            report.loss = loss;
            report.usage = usage;
            report.warm = report.warm && warm;
          },
          nb::arg("loss"),
          nb::arg("usage"),
          nb::arg("warm") = true,
          "The last gradient is there; not warm: its time says nothing of the device's speed, as where a graph was "
          "traced.")
      .def(
          "log_loss", [](PythonSession& self, double loss) { self->report().loss = loss; }, nb::arg("loss"))
      .def(
          "stop_for",
          [](PythonSession& self, std::string words) { self->report().non_finite = std::move(words); },
          nb::arg("words"),
          "The job ends for all with these words, since a number is not finite.")
      .def_prop_ro("loss", [](PythonSession& self) { return self->report().loss; })
      .def("push", &PythonSession::push, nb::arg("weight"), nb::arg("settings"), nb::arg("gradients"))
      .def("finish", &PythonSession::finish, Released())
      .def(
          "reach_barrier", [](PythonSession& self) { self->reach_barrier(); }, Released())
      .def(
          "fail",
          [](PythonSession& self, const std::string& kind, const std::string& text) {
            try {
              raise({.kind = kind, .text = text});
            } catch (const std::exception& error) {
              self->fail(error);
            }
          },
          nb::arg("kind"),
          nb::arg("text"),
          Released(),
          "Ends the job on all workers, with these words.")
      .def("close", &PythonSession::close, nb::arg("orderly"), "For good.");
}

void bind_state(nb::class_<PythonSession>& session) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  session
      .def(
          "let_go",
          [](PythonSession& self) {
            std::vector<int> late;
            for (const Peer& peer : self->let_go()) {
              late.push_back(peer.rank);
            }
            return late;
          },
          Released(),
          "After a loss; ranks that were waited for in vain.")
      .def(
          "take_up",
          &PythonSession::take_up,
          nb::arg("workers"),
          nb::arg("rank"),
          nb::arg("link"),
          Released(),
          "Goes on among those who are left; collective.")
      .def_prop_ro("updaters", &PythonSession::updaters)
      .def_prop_ro("order", [](PythonSession& self) { return self->order(); })
      .def_prop_ro("epoch", [](PythonSession& self) { return self->place().epoch; })
      .def_prop_ro("position", [](PythonSession& self) { return self->place().position; })
      .def_prop_ro("ledger", [](PythonSession& self) { return self->place().ledger; })
      .def_prop_ro("next_record", [](PythonSession& self) { return self->place().next_record; })
      .def_prop_ro("at_barrier", [](PythonSession& self) { return self->phase() == Session::Phase::kBarrier; })
      .def_prop_ro("computing", [](PythonSession& self) { return self->phase() == Session::Phase::kComputing; })
      .def_prop_ro("pushing", [](PythonSession& self) { return self->phase() == Session::Phase::kPushing; });
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::register_exception_translator(translate);
  bind_link(module);
  nb::class_<PythonSession> session(module, "AsyncSession", "A worker's way through an asynchronous job.");
  session.def(
      "__init__",
      [](PythonSession* self, nb::object owner, const Replica& replica, std::int64_t next_record) {
        const JobSettings& settings = replica.options();
        const int trainers = static_cast<int>(replica.workers().size());
        new (self) PythonSession(
            std::move(owner),
            {.global_batch = settings.global_batch,
             .bound = settings.sync == Sync::kSsp ? std::optional(settings.async.staleness) : std::nullopt,
             .push_rate = settings.async.rate,
             .controller = {.policy = settings.policy, .rate = settings.rate},
             .cpu = replica.on_cpu()},
            {.workers = replica.workers(), .rank = replica.rank(), .trainers = trainers},
            {.epoch = replica.epoch(),
             .position = replica.position(),
             .samples_per_epoch = replica.sampler().samples_per_epoch(),
             .ledger = replica.ledger(),
             .next_record = next_record});
      },
      nb::arg("owner"),
      nb::arg("replica"),
      nb::arg("next_record"));
  bind_steps(session);
  bind_state(session);
}

}  // namespace isochron::python
