// Serves the live page of a run over HTTP: `/` the page, `/events` its updates (server-sent events), `/data.json` its
// data, `/metrics` for Prometheus, `/healthz`.
//
// It only answers GET, reads no file and writes none; requests are bounded in size, time and number. Threads of its own
// answer; add() may be called from any thread and does not wait for them. Several servers may live in one process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "isochron/core/trace/run_log.h"

namespace isochron::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";  // an address of this machine, or localhost
  std::int64_t port = 8080;        // 0: any that is free
  /// What requests must bring, as `Authorization: Bearer TOKEN` or `?token=TOKEN`; at least 16 letters, digits, - or _.
  /// Must not be empty unless `host` is the loopback address.
  std::string token;

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

class RunServer {
 public:
  /// Starts to serve. Throws std::invalid_argument on bad options and isochron::Error if the address cannot be had.
  RunServer(const RunHeader& header, const ServeOptions& options);
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;
  /// Tells the pages that the run has ended, and stops.
  ~RunServer();

  void add(const StepRecord& record);
  void add(const UpdateRecord& record);
  void add(const EventRecord& record);
  void add(const EvaluationRecord& record);

  [[nodiscard]] std::int64_t port() const;
  /// Where to look, the token included.
  [[nodiscard]] std::string url() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace isochron::serve
