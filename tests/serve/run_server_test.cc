// Talks to a real server over the loopback address.
#include "isochron/serve/run_server.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include "isochron/core/error.h"

namespace isochron::serve {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kToken = "0123456789abcdef";

RunHeader header() {
  return {
      .program = "train",
      .policy = "isochron",
      .cluster = "one",
      .global_batch = 10,
      .workers = {{.id = 0, .name = "fast", .kind = "cpu"}}};
}

StepRecord step(std::int64_t number) {
  return {
      .step = number,
      .start_seconds = static_cast<double>(number),
      .seconds = 1.0,
      .workers = {{.id = 0, .batch = 10, .compute_seconds = 1.0}}};
}

httplib::Client client_of(const RunServer& server) {
  httplib::Client client("127.0.0.1", static_cast<int>(server.port()));
  client.set_read_timeout(10);
  return client;
}

TEST(RunServerTest, ServesThePageItsDataAndMetrics) {
  RunServer server(header(), {.port = 0});
  server.add(step(0));
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");
  httplib::Client client = client_of(server);
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body, AllOf(StartsWith("<!doctype html>"), HasSubstr("\"live\":true")));
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(json::parse(client.Get("/data.json")->body).at("runs").at(0).at("timeline").at("records"), 1);
  EXPECT_THAT(client.Get("/metrics")->body, HasSubstr("isochron_batch_size{worker=\"fast\",kind=\"cpu\"} 10\n"));
  EXPECT_EQ(client.Get("/healthz")->body, "ok\n");
  EXPECT_EQ(client.Get("/etc/passwd")->status, 404);
  EXPECT_EQ(client.Get("/../../etc/passwd")->status, 404);
}

TEST(RunServerTest, AnswersOnlyGet) {
  const RunServer server(header(), {.port = 0});
  httplib::Client client = client_of(server);
  EXPECT_EQ(client.Post("/", "x", "text/plain")->status, 405);
  EXPECT_EQ(client.Put("/data.json", "x", "text/plain")->status, 405);
  EXPECT_EQ(client.Delete("/")->status, 405);
  EXPECT_EQ(client.Options("/")->status, 405);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
}

TEST(RunServerTest, RefusesLargeRequests) {
  std::signal(SIGPIPE, SIG_IGN);  // the client writes on when the server has closed
  const RunServer server(header(), {.port = 0});
  EXPECT_GE(client_of(server).Get("/" + std::string(10000, 'x'))->status, 400);
  const auto posted = client_of(server).Post("/", std::string(10 << 20, 'x'), "text/plain");
  EXPECT_TRUE(!posted || posted->status >= 400);
  EXPECT_EQ(client_of(server).Get("/healthz")->status, 200);
}

TEST(RunServerTest, IsKnownUnderNamesOfTheLoopbackAddressOnly) {
  const RunServer server(header(), {.port = 0});
  httplib::Client client = client_of(server);
  EXPECT_EQ(client.Get("/data.json", {{"Host", "evil.example:8080"}})->status, 403);
  EXPECT_EQ(client.Get("/data.json", {{"Host", "localhost:8080"}})->status, 200);
}

TEST(RunServerTest, AsksForTheTokenWhereThereIsOne) {
  const RunServer server(header(), {.host = "0.0.0.0", .port = 0, .token = kToken});
  EXPECT_THAT(server.url(), testing::EndsWith("/?token=0123456789abcdef"));
  httplib::Client client = client_of(server);
  for (const std::string path : {"/", "/data.json", "/metrics", "/events"}) {
    EXPECT_EQ(client.Get(path)->status, 401) << path;
    EXPECT_EQ(client.Get(path + "?token=0123456789abcdeg")->status, 401) << path;
  }
  EXPECT_EQ(client.Get("/data.json?token=0123456789abcdef")->status, 200);
  EXPECT_EQ(client.Get("/metrics", {{"Authorization", "Bearer 0123456789abcdef"}})->status, 200);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
}

TEST(RunServerTest, RefusesOptionsThatAreNotSafe) {
  const auto refusal = [](const ServeOptions& options) -> std::string {
    try {
      const RunServer server(header(), options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({.host = "0.0.0.0", .port = 0}), StartsWith("token is ''; permitted: at least 16"));
  EXPECT_THAT(refusal({.host = "0.0.0.0", .port = 0, .token = "short"}), StartsWith("token is 'short'"));
  EXPECT_THAT(refusal({.port = 0, .token = "with blanks in between"}), StartsWith("token is "));
  EXPECT_THAT(refusal({.port = 65536}), StartsWith("port is 65536"));
  EXPECT_THAT(refusal({.host = "", .port = 0}), StartsWith("host is ''"));
}

TEST(RunServerTest, TellsWhenThePortIsTaken) {
  const RunServer first(header(), {.port = 0});
  EXPECT_THROW(RunServer(header(), {.port = first.port()}), Error);
}

TEST(RunServerTest, StreamsWhatHappens) {
  auto server = std::make_unique<RunServer>(header(), ServeOptions{.port = 0});
  server->add(step(0));
  std::string received;
  std::atomic<bool> connected = false;
  std::thread listener([&, port = static_cast<int>(server->port())] {
    httplib::Client client("127.0.0.1", port);
    client.set_read_timeout(10);
    client.Get("/events?after=1", [&](const char* data, std::size_t size) {
      received.append(data, size);
      connected = true;
      return true;
    });
  });
  while (!connected) {  // the lists that the page may lack come at once
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  server->add(step(1));
  server.reset();  // what was added still comes, then the end
  listener.join();
  EXPECT_THAT(received, AllOf(HasSubstr("event: update\nid: 2\ndata: {"), HasSubstr("event: end\n")));
  const std::size_t last = received.rfind("event: update");
  const std::size_t begin = received.find("data: ", last) + 6;
  const json update = json::parse(received.substr(begin, received.find('\n', begin) - begin));
  EXPECT_EQ(update.at("run").at("timeline").at("records"), 2);
  EXPECT_EQ(update.at("run").at("timeline").at("bins"), 1);
}

TEST(RunServerTest, BoundsTheNumberOfListeners) {
  const RunServer server(header(), {.port = 0});
  const auto port = static_cast<int>(server.port());
  std::atomic<int> streams = 0;
  std::atomic<int> refused = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> listeners;
  for (int i = 0; i < 18; ++i) {
    listeners.emplace_back([&] {
      httplib::Client client("127.0.0.1", port);
      client.set_read_timeout(10);
      bool counted = false;
      client.Get(
          "/events",
          [&](const httplib::Response& response) {
            (response.status == 200 ? streams : refused)++;
            counted = true;
            return response.status == 200;
          },
          [&](const char*, std::size_t) { return !stop; });
      if (!counted) {
        ++refused;
      }
    });
  }
  while (streams + refused < 18) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(streams, 16);
  EXPECT_EQ(client_of(server).Get("/healthz")->status, 200);  // threads are left for others
  stop = true;
  for (std::thread& listener : listeners) {
    listener.join();
  }
}

TEST(RunServerTest, TakesRecordsFromManyThreads) {
  RunServer server(header(), {.port = 0});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::int64_t n = 0; n < 200; ++n) {
        server.add(step(n));
        server.add(EvaluationRecord{.step = n});
      }
    });
  }
  httplib::Client client = client_of(server);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.Get("/data.json")->status, 200);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(client.Get("/metrics")->body, HasSubstr("isochron_steps_total 800\n"));
}

}  // namespace
}  // namespace isochron::serve
