#include "isochron/serve/run_server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>

#include <httplib.h>
#include <pthread.h>

#include "isochron/core/error.h"
#include "isochron/serve/access.h"
#include "isochron/serve/live_run.h"

namespace isochron::serve {
namespace {

using Answer = httplib::Server::HandlerResponse;
using std::chrono::milliseconds;

constexpr std::size_t kThreads = 24;
constexpr int kMostListeners = 16;  // each holds a thread, and the others must be left some
constexpr std::size_t kMostBody = 1024;
constexpr milliseconds kBetweenUpdates{500};
constexpr milliseconds kPatience{1000};  // after which a connection is shown to be alive, or known to be gone

void refuse(const std::string& field, const std::string& value, const std::string& permitted) {
  throw std::invalid_argument(field + " is '" + value + "'; permitted: " + permitted);
}

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

void fail(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

/// What came before, by the browser's word when it connects again, or by the page's.
std::int64_t records_known(const httplib::Request& request) {
  const std::string text = request.has_header("Last-Event-ID") ? request.get_header_value("Last-Event-ID")
                                                               : request.get_param_value("after");
  std::int64_t records = 0;
  std::from_chars(text.data(), text.data() + text.size(), records);
  return std::max<std::int64_t>(0, records);
}

}  // namespace

void ServeOptions::validate() const {
  if (port < 0 || port > 65535) {
    refuse("port", std::to_string(port), "0 to 65535");
  }
  if (host.empty()) {
    refuse("host", host, "an address of this machine");
  }
  const bool plain = std::ranges::all_of(token, is_token_character);
  if (token.empty() ? !is_loopback(host) : token.size() < kShortestToken || !plain) {
    refuse(
        "token",
        token,
        "at least " + std::to_string(kShortestToken) +
            " letters, digits, - or _; none only where host is 127.0.0.1, ::1 or localhost");
  }
}

class RunServer::Implementation {
 public:
  Implementation(const RunHeader& header, const ServeOptions& options) : options_(options), run_(header) {
    options_.validate();
    limit();
    route();
    port_ = options.port == 0 ? server_.bind_to_any_port(options.host)
            : server_.bind_to_port(options.host, static_cast<int>(options.port)) ? static_cast<int>(options.port)
                                                                                 : -1;
    if (port_ < 0) {
      throw Error(
          "cannot serve at " + options.host + ", port " + std::to_string(options.port) +
          ": the address is not this machine's, or the port is taken");
    }
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "isochron-serve");  // the threads that answer inherit it
      server_.listen_after_bind();
      finished_ = true;
    });
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() {
    stopping_ = true;
    run_.end();
    // A page that is slow to take the news may miss it.
    for (milliseconds waited{0}; listeners_ > 0 && waited < kPatience; waited += milliseconds(10)) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    while (!server_.is_running() && !finished_) {  // stop() before the loop runs would be lost
      std::this_thread::sleep_for(milliseconds(1));
    }
    server_.stop();
    thread_.join();
  }

  LiveRun& run() { return run_; }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string url() const {
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string place = (v6 ? "[" + options_.host + "]" : options_.host) + ":" + std::to_string(port_);
    return "http://" + place + "/" + (options_.token.empty() ? "" : "?token=" + options_.token);
  }

 private:
  void limit() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kMostBody);
    server_.set_read_timeout(5);
    server_.set_write_timeout(5);
    server_.set_keep_alive_max_count(100);
    server_.set_keep_alive_timeout(1);
    // The port of a server that has just ended may be taken again, but never shared with one that runs.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.set_default_headers(
        {{"Cache-Control", "no-store"},
         {"X-Content-Type-Options", "nosniff"},
         {"X-Frame-Options", "DENY"},
         {"Referrer-Policy", "no-referrer"}});
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return admit(request, response) ? Answer::Unhandled : Answer::Handled;
    });
    server_.set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
      fail(response, 500, "internal error");
    });
  }

  /// Otherwise `response` says why not.
  [[nodiscard]] bool admit(const httplib::Request& request, httplib::Response& response) const {
    if (request.method != "GET") {
      response.set_header("Allow", "GET");
      fail(response, 405, "only GET");
      return false;
    }
    if (request.path == "/healthz") {
      return true;
    }
    if (options_.token.empty()) {
      if (!names_loopback(request.get_header_value("Host"))) {
        fail(response, 403, "the server is known under names of the loopback address only");
        return false;
      }
      return true;
    }
    const std::string bearer = request.get_header_value("Authorization");
    const bool right =
        same_token(bearer, "Bearer " + options_.token) || same_token(request.get_param_value("token"), options_.token);
    if (!right) {
      response.set_header("WWW-Authenticate", "Bearer");
      fail(response, 401, "a token is needed: ?token=TOKEN, or the header Authorization: Bearer TOKEN");
    }
    return right;
  }

  void route() {
    server_.Get("/", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(run_.page(), "text/html; charset=utf-8");
    });
    server_.Get("/data.json", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(run_.page_json(), "application/json");
    });
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(run_.metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain; charset=utf-8");
    });
    server_.Get(
        "/events", [this](const httplib::Request& request, httplib::Response& response) { stream(request, response); });
  }

  void stream(const httplib::Request& request, httplib::Response& response) {
    if (listeners_.fetch_add(1) >= kMostListeners) {
      --listeners_;
      fail(response, 503, "too many pages are open");
      return;
    }
    const auto known = std::make_shared<view::Since>(LiveRun::since_records(records_known(request)));
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, known](std::size_t, httplib::DataSink& sink) { return send(*known, sink); },
        [this](bool) { --listeners_; });
  }

  /// One message; whether there will be another.
  bool send(view::Since& known, httplib::DataSink& sink) {
    const LiveRun::Message message = run_.next(known, kPatience);
    if (!sink.write(message.text.data(), message.text.size())) {
      return false;
    }
    known = message.since;
    if (message.last) {
      sink.done();
    } else {
      for (milliseconds waited{0}; waited < kBetweenUpdates && !stopping_; waited += milliseconds(50)) {
        std::this_thread::sleep_for(milliseconds(50));
      }
    }
    return true;
  }

  ServeOptions options_;
  LiveRun run_;
  httplib::Server server_;
  int port_ = -1;
  std::atomic<int> listeners_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

RunServer::RunServer(const RunHeader& header, const ServeOptions& options)
    : implementation_(std::make_unique<Implementation>(header, options)) {
}

RunServer::~RunServer() = default;

void RunServer::add(const StepRecord& record) {
  implementation_->run().add(record);
}

void RunServer::add(const UpdateRecord& record) {
  implementation_->run().add(record);
}

void RunServer::add(const EventRecord& record) {
  implementation_->run().add(record);
}

void RunServer::add(const EvaluationRecord& record) {
  implementation_->run().add(record);
}

std::int64_t RunServer::port() const {
  return implementation_->port();
}

std::string RunServer::url() const {
  return implementation_->url();
}

}  // namespace isochron::serve
