// Answers HTTP requests on one thread that waits for nobody.
//
// Everything that others can make it take is bounded: connections in all and per address, of which the oldest that is
// not a stream makes room for the next one, so that who opens many and says nothing keeps nobody out; the bytes and the
// time of a request; the time in which an answer is taken; and what lies ready to be sent to all of them together, of
// which the answer that nobody has taken from for the longest makes room for the next one, so that who takes nothing
// keeps nobody waiting. An answer is either a text or a stream of parts, for which it asks as they are taken.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "isochron/serve/http.h"

namespace isochron::serve {

inline constexpr std::size_t kMostConnections = 64;
inline constexpr std::size_t kMostPerAddress = 32;
inline constexpr std::size_t kMostStreams = 16;
/// Beyond these, counted apart for answers and for parts of streams, the one that waits for the longest is given up.
inline constexpr std::size_t kMostPendingBytes = 4 << 20;
inline constexpr std::size_t kSmallAnswer = 64 << 10;  // this much costs nobody else an answer

/// The next part of a stream, empty if there is nothing to say yet.
struct StreamPart {
  std::string text;
  bool last = false;
};
using Stream = std::function<StreamPart()>;

struct HttpAnswer {
  HttpReply reply;
  Stream stream;  // if there is one, the body is what it gives
};

class HttpServer {
 public:
  /// Runs on the server's thread; what it throws becomes the status 500.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  /// Starts to answer. Throws isochron::Error if the address cannot be had. Port 0: any that is free.
  HttpServer(const std::string& host, int port, Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Lets streams end by themselves for a second, then closes everything.
  ~HttpServer();

  [[nodiscard]] int port() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace isochron::serve
