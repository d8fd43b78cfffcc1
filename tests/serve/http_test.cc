#include "isochron/serve/http.h"

#include <string>

#include <gtest/gtest.h>

namespace isochron::serve {
namespace {

/// 0: neither a request nor a refusal yet. 200: a request.
int status_of(const std::string& bytes) {
  const Parsed parsed = parse_request(bytes);
  EXPECT_FALSE(parsed.request && parsed.refused);
  return parsed.refused ? parsed.refused->status : parsed.request ? 200 : 0;
}

TEST(HttpTest, TakesARequestApart) {
  const Parsed parsed = parse_request(
      "GET /events?after=12&token=abc&after=13 HTTP/1.1\r\nHost:localhost:80 \r\nhost: second\r\nX-Empty:\r\n\r\nbody");
  ASSERT_TRUE(parsed.request);
  EXPECT_EQ(parsed.request->method, "GET");
  EXPECT_EQ(parsed.request->path, "/events");
  EXPECT_EQ(parsed.request->parameter("after"), "12");
  EXPECT_EQ(parsed.request->parameter("token"), "abc");
  EXPECT_EQ(parsed.request->parameter("tok"), "");
  EXPECT_EQ(parsed.request->header("host"), "localhost:80");
  EXPECT_EQ(parsed.request->header("x-empty"), "");
  EXPECT_EQ(parsed.request->header("cookie"), "");
}

TEST(HttpTest, WaitsForTheEmptyLine) {
  const std::string whole = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(status_of(whole.substr(0, size)), 0) << size;
  }
  EXPECT_EQ(status_of(whole), 200);
}

TEST(HttpTest, RefusesWhatIsNoRequest) {
  for (const std::string first :
       {"\r\n",
        "GET\r\n",
        "GET /\r\n",
        "GET / HTTP/2\r\n",
        "GET http://a/ HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "GET /\x01 HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n",
        "GET / HTTP/1.1\r\n: no name\r\n",
        "GET / HTTP/1.1\r\nwith blank: x\r\n"}) {
    EXPECT_EQ(status_of(first), 400) << first;
  }
}

TEST(HttpTest, BoundsARequest) {
  std::string request = "GET / HTTP/1.1\r\n";
  for (std::size_t i = 0; i < kMostHeaderLines; ++i) {
    request += "a: b\r\n";
  }
  EXPECT_EQ(status_of(request + "\r\n"), 200);
  EXPECT_EQ(status_of(request + "a: b\r\n"), 431);
  const std::string endless = "GET /" + std::string(kMostRequestBytes, 'x');
  EXPECT_EQ(status_of(endless.substr(0, kMostRequestBytes - 1)), 0);
  EXPECT_EQ(status_of(endless.substr(0, kMostRequestBytes)), 431);
  EXPECT_EQ(status_of(endless + " HTTP/1.1\r\n\r\n"), 431);
}

}  // namespace
}  // namespace isochron::serve
