// Framing of requests, without sockets. Every case runs whole and byte by byte.
#include "server/http/request_parser.h"

#include <gtest/gtest.h>

namespace kvasir::server {
namespace {

struct Parsed {
  int error = 0;  // status; 0: none
  bool is_done = false;
  RequestHead head;
  std::string body;
  std::string rest;
};

Parsed parse(const std::string& bytes, std::size_t step, const ParserLimits& limits) {
  RequestParser parser(limits);
  Parsed out;
  std::string in;
  for (std::size_t i = 0; i < bytes.size(); i += step) {
    in += bytes.substr(i, step);
    in.erase(0, parser.feed(in));
    if (parser.has_head()) in.erase(0, parser.feed(in));
  }
  out.error = parser.error() ? parser.error()->status : 0;
  out.is_done = parser.is_done() && !parser.error();
  out.head = parser.head();
  out.body = parser.body();
  out.rest = in;
  return out;
}

Parsed parse(const std::string& bytes, const ParserLimits& limits = {}) {
  const Parsed slow = parse(bytes, 1, limits);
  Parsed whole = parse(bytes, bytes.size() + 1, limits);
  EXPECT_EQ(slow.error, whole.error) << bytes;
  EXPECT_EQ(slow.is_done, whole.is_done) << bytes;
  EXPECT_EQ(slow.body, whole.body) << bytes;
  return whole;
}

const std::string kPost = "POST /x HTTP/1.1\r\nHost: h\r\n";

TEST(RequestParser, ReadsHeadAndBodyAndLeavesTheNextRequest) {
  const Parsed p =
      parse("POST /a?b HTTP/1.1\r\nHost: h\r\nX-Y:  z \r\nContent-Length: 3\r\n\r\nabcGET");

  EXPECT_TRUE(p.is_done);
  EXPECT_EQ(p.head.method, "POST");
  EXPECT_EQ(p.head.target, "/a?b");
  EXPECT_TRUE(p.head.wants_keep_alive);
  EXPECT_EQ(p.head.headers[1], (std::pair<std::string, std::string>("x-y", "z")));
  EXPECT_EQ(p.body, "abc");
  EXPECT_EQ(p.rest, "GET");
}

TEST(RequestParser, JoinsChunksAndIgnoresExtensionsAndTrailers) {
  const Parsed p = parse(kPost +
                         "Transfer-Encoding: chunked\r\n\r\n"
                         "3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nx-api-key: stolen\r\n\r\nNEXT");
  EXPECT_TRUE(p.is_done);
  EXPECT_EQ(p.body, "abc0123456789");
  EXPECT_EQ(p.head.headers.size(), 2u);
  EXPECT_EQ(p.rest, "NEXT");
}

TEST(RequestParser, RefusesDoubtfulLengths) {
  for (const char* lines : {
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
           "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
           "Content-Length: 3, 3\r\n\r\nabc",
           "Content-Length: -1\r\n\r\n",
           "Content-Length: +3\r\n\r\nabc",
           "Content-Length: 3x\r\n\r\nabc",
           "Content-Length: 99999999999999999999999\r\n\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       }) {
    EXPECT_EQ(parse(kPost + lines).error, 400) << lines;
  }
  EXPECT_EQ(parse(kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n").error, 501);
  EXPECT_EQ(parse(kPost + "Transfer-Encoding: chunked, gzip\r\n\r\n").error, 501);
  EXPECT_EQ(parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").error, 400);
}

TEST(RequestParser, RefusesMalformedHeads) {
  for (const char* bytes : {
           "G\x01T / HTTP/1.1\r\n\r\n",
           "GET /\r\n\r\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\nspaced : x\r\n\r\n",
           "GET / HTTP/1.1\r\nx: a\x01z\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
       }) {
    EXPECT_EQ(parse(bytes).error, 400) << bytes;
  }
}

TEST(RequestParser, RefusesMalformedChunks) {
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* chunks : {"x\r\n", "3\r\nabcde\r\n", "FFFFFFFFFFFFFFFFF\r\n", "-1\r\n"}) {
    EXPECT_EQ(parse(head + chunks).error != 0, true) << chunks;
  }
}

TEST(RequestParser, BoundsTheBody) {
  const ParserLimits limits{.max_header_bytes = 1024, .max_body_bytes = 8};
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";

  const Parsed fits = parse(chunked + "4\r\nabcd\r\n4\r\nabcd\r\n0\r\n\r\n", limits);
  const Parsed too_much = parse(chunked + "4\r\nabcd\r\n5\r\nabcde\r\n0\r\n\r\n", limits);

  EXPECT_TRUE(fits.is_done);
  EXPECT_EQ(too_much.error, 413);
  EXPECT_EQ(parse(kPost + "Content-Length: 9\r\n\r\nabcdefghi", limits).error, 413);
}

TEST(RequestParser, BoundsTheHeadersAndWhatWaitsBetweenChunks) {
  const ParserLimits limits{.max_header_bytes = 256, .max_body_bytes = 1024};
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string filler(300, 'a');
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 30; ++i) many += "x-" + std::to_string(i) + ": 0123\r\n";

  EXPECT_EQ(parse("GET /" + filler, limits).error, 431);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nx: " + filler, limits).error, 431);
  EXPECT_EQ(parse(many + "\r\n", limits).error, 431);
  EXPECT_EQ(parse(chunked + "1;" + filler, limits).error, 400);
  EXPECT_EQ(parse(chunked + "0\r\nx: " + filler, limits).error, 400);
}

TEST(RequestParser, KnowsKeepAliveAndExpectations) {
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").head.wants_keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").head.wants_keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").head.wants_keep_alive);
  EXPECT_TRUE(parse(kPost + "Expect: 100-Continue\r\n\r\n").head.expects_continue);
}

}  // namespace
}  // namespace kvasir::server
