#include "isochron/serve/run_server.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/serve/access.h"
#include "isochron/serve/http_server.h"
#include "isochron/serve/live_run.h"

namespace isochron::serve {
namespace {

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// What came before, by the browser's word when it connects again, or by the page's.
std::int64_t records_known(const HttpRequest& request) {
  const std::string last = request.header("last-event-id");
  const std::string text = last.empty() ? request.parameter("after") : last;
  std::int64_t records = 0;
  std::from_chars(text.data(), text.data() + text.size(), records);
  return std::max<std::int64_t>(0, records);
}

ServeOptions checked(ServeOptions options) {
  options.validate();
  return options;
}

}  // namespace

void ServeOptions::validate() const {
  require_between("port", port, 0, 65535);
  require(!host.empty(), "host", in_quotes(host), "an address of this machine");
  const bool plain = std::ranges::all_of(token, is_token_character);
  if (token.empty() ? !is_loopback(host) : token.size() < kShortestToken || !plain) {
    refuse(
        "token",
        in_quotes(token),
        "at least " + std::to_string(kShortestToken) +
            " letters, digits, - or _; none only where host is 127.0.0.1, ::1 or localhost");
  }
}

class RunServer::Implementation {
 public:
  Implementation(const RunHeader& header, const ServeOptions& options)
      : options_(checked(options)),
        run_(header),
        server_(options.host, static_cast<int>(options.port), [this](const HttpRequest& request) {
          return answer(request);
        }) {}
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() { run_.end(); }

  LiveRun& run() { return run_; }
  [[nodiscard]] int port() const { return server_.port(); }
  [[nodiscard]] std::string url() const {
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string place = (v6 ? "[" + options_.host + "]" : options_.host) + ":" + std::to_string(port());
    return "http://" + place + "/" + (options_.token.empty() ? "" : "?token=" + options_.token);
  }

 private:
  HttpAnswer answer(const HttpRequest& request) {
    if (const std::optional<HttpReply> refused = refuse_if_not_admitted(request)) {
      return {.reply = *refused};
    }
    const auto text = [](std::string type, std::string body) {
      return HttpAnswer{.reply = {.type = std::move(type), .body = std::move(body)}};
    };
    if (request.path == "/") {
      return text("text/html; charset=utf-8", run_.page());
    }
    if (request.path == "/data.json") {
      return text("application/json", run_.page_json());
    }
    if (request.path == "/metrics") {
      return text("text/plain; version=0.0.4; charset=utf-8", run_.metrics());
    }
    if (request.path == "/healthz") {
      return text("text/plain; charset=utf-8", "ok\n");
    }
    if (request.path == "/events") {
      return {
          .reply = {.type = "text/event-stream"},
          .stream = [this, known = LiveRun::since_records(records_known(request))]() mutable {
            LiveRun::Message message = run_.next(known);
            known = message.since;
            return StreamPart{.text = std::move(message.text), .last = message.last};
          }};
    }
    return {.reply = refusal(404, "there is nothing here")};
  }

  [[nodiscard]] std::optional<HttpReply> refuse_if_not_admitted(const HttpRequest& request) const {
    if (request.method != "GET") {
      HttpReply reply = refusal(405, "only GET");
      reply.headers = "Allow: GET\r\n";
      return reply;
    }
    if (request.header("range").find(',') != std::string::npos) {  // one alone is ignored, which is permitted
      return refusal(416, "no more than one range");
    }
    if (request.path == "/healthz") {
      return {};
    }
    if (options_.token.empty()) {
      return names_loopback(request.header("host"))
                 ? std::optional<HttpReply>()
                 : refusal(403, "the server is known under names of the loopback address only");
    }
    if (same_token(request.header("authorization"), "Bearer " + options_.token) ||
        same_token(request.parameter("token"), options_.token)) {
      return {};
    }
    HttpReply reply = refusal(401, "a token is needed: ?token=TOKEN, or the header Authorization: Bearer TOKEN");
    reply.headers = "WWW-Authenticate: Bearer\r\n";
    return reply;
  }

  ServeOptions options_;
  LiveRun run_;
  HttpServer server_;  // its thread uses the others
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
