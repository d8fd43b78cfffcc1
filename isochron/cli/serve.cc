#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "isochron/cli/commands.h"
#include "isochron/cli/options.h"
#include "isochron/cli/run_option.h"
#include "isochron/cli/signals.h"
#include "isochron/io/run_log_follower.h"
#include "isochron/serve/run_server.h"

namespace isochron::cli {
namespace {

struct ServeRequest {
  std::string run;
  serve::ServeOptions options;
};

/// Feeds the server, which begins with the header.
class Feed {
 public:
  explicit Feed(serve::ServeOptions options) : options_(std::move(options)) {}

  void take(const io::RunLogLine& line) {
    const auto add = [this](const auto& record) {
      if constexpr (std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
        server_.emplace(record, options_);
      } else {
        server_->add(record);
      }
    };
    std::visit(add, line);
  }
  [[nodiscard]] bool started() const { return server_.has_value(); }
  [[nodiscard]] std::string url() const { return server_->url(); }

 private:
  serve::ServeOptions options_;
  std::optional<serve::RunServer> server_;
};

void check(const serve::ServeOptions& options) {
  try {
    options.validate();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--" + std::string(error.what()));
  }
}

void run_serve(const ServeRequest& request) {
  check(request.options);
  const std::string path = run_log_of(request.run);
  io::RunLogFollower log(path);
  Feed feed(request.options);
  const SignalGuard signals({SIGINT, SIGTERM, SIGHUP});
  bool announced = false;
  do {
    log.poll([&feed](const io::RunLogLine& line) { feed.take(line); });
    if (feed.started() && !announced) {
      std::cout << "serving " << path << " at " << feed.url() << " until interrupted\n" << std::flush;
      announced = true;
    }
  } while (!signals.wait(0.2));
}

}  // namespace

void add_serve(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("serve", "Serve the live page of a run log, and Prometheus metrics");
  const auto request = std::make_shared<ServeRequest>();
  command->add_option("RUN", request->run, "Run log, which may still be growing, or the process of a launcher")
      ->required();
  add_whole(*command, "--port", request->options.port, 0, 65535, "0: any that is free");
  command->add_option("--host", request->options.host, "Address to serve at; other than loopback needs --token")
      ->capture_default_str();
  command->add_option("--token", request->options.token, "What a request must bring: ?token=T or a bearer token")
      ->type_name("T")
      ->envname(kTokenVariable);
  command->footer(
      "The page is at /, metrics at /metrics, a check at /healthz. Only GET is answered, and no file is written.\n"
      "Everybody on this machine can read a command line: the token may come in ISOCHRON_PAGE_TOKEN instead.\n"
      "There is no encryption: beyond this machine, use a tunnel (ssh -L) or a proxy.");
  command->final_callback([request] { run_serve(*request); });
}

}  // namespace isochron::cli
