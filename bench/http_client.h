// A client for benchmarks: one streamed request, and when each piece of its answer arrived.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"

namespace kvasir::bench {

using Stopwatch = std::chrono::steady_clock;
using Stamps = std::vector<Stopwatch::time_point>;  // one a piece of text

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  std::exit(1);
}

inline int connect_to(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    fail("cannot connect to the server");
  return fd;
}

// Posts the body, which asks for a stream. `marker` begins a piece of text. on_piece may be empty;
// where it says false, the connection is closed.
inline Stamps stream(std::uint16_t port,
                     const std::string& path,
                     json::Object body,
                     std::string_view marker,
                     const std::function<bool(std::size_t n_pieces)>& on_piece = {}) {
  body["stream"] = true;
  const std::string text = json::write(json::Value(std::move(body)));
  const std::string request = "POST " + path +
                              " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                              "Content-Type: application/json\r\nContent-Length: " +
                              std::to_string(text.size()) + "\r\n\r\n" + text;
  const int fd = connect_to(port);
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t n = ::send(fd, request.data() + sent, request.size() - sent, 0);
    if (n <= 0) fail("cannot send the request");
    sent += static_cast<std::size_t>(n);
  }
  Stamps stamps;
  std::vector<char> buffer(1 << 16);
  for (ssize_t n; (n = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(n));
    if (piece.find(marker) == piece.npos) continue;
    stamps.push_back(Stopwatch::now());
    if (on_piece && !on_piece(stamps.size())) break;
  }
  ::close(fd);
  if (stamps.empty()) fail("a request gave no text");
  return stamps;
}

inline constexpr std::string_view kChatPiece = "\"delta\":{\"content\"";

inline double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(static_cast<double>(values.size()) * share);
  return values[std::min(values.size() - 1, at)];
}

}  // namespace kvasir::bench
