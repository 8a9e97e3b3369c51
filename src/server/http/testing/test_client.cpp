#include "server/http/testing/test_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "server/http/ascii.h"

namespace kvasir::server::testing {

TestClient::TestClient(std::uint16_t port, int receive_buffer) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

TestClient::TestClient(const std::string& unix_path) {
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, unix_path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

TestClient::TestClient(TestClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}

void TestClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void TestClient::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

void TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the reply, or its absence, tells
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string TestClient::read_bytes(std::size_t n_at_most) {
  pollfd entry{fd_, POLLIN, 0};
  if (::poll(&entry, 1, 5000) <= 0) return {};
  std::string out(n_at_most, '\0');
  const ssize_t n = ::recv(fd_, out.data(), out.size(), 0);
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return out;
}

bool TestClient::fill() {
  const std::string more = read_bytes(64 << 10);
  in_ += more;
  return !more.empty();
}

bool TestClient::read_until(std::string_view mark, std::string& out) {
  std::size_t at = 0;
  while ((at = in_.find(mark)) == std::string::npos) {
    if (!fill()) return false;
  }
  out = in_.substr(0, at);
  in_.erase(0, at + mark.size());
  return true;
}

bool TestClient::read_exactly(std::size_t n, std::string& out) {
  while (in_.size() < n) {
    if (!fill()) return false;
  }
  out += in_.substr(0, n);
  in_.erase(0, n);
  return true;
}

bool TestClient::read_chunks(std::string& out) {
  for (;;) {
    std::string line;
    if (!read_until("\r\n", line)) return false;
    const std::size_t n = std::stoul(line, nullptr, 16);
    std::string end;
    if (!read_exactly(n, out) || !read_exactly(2, end) || end != "\r\n") return false;
    if (n == 0) return true;
  }
}

TestReply TestClient::read_reply(bool is_head) {
  TestReply reply;
  std::string head;
  if (!read_until("\r\n\r\n", head)) return reply;
  reply.status = std::stoi(head.substr(9, 3));
  std::size_t at = head.find("\r\n");
  while (at != std::string::npos) {
    const std::size_t next = head.find("\r\n", at + 2);
    const std::string line = head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
    const std::size_t colon = line.find(':');
    reply.headers[to_lower(line.substr(0, colon))] = trim(std::string_view(line).substr(colon + 1));
    at = next;
  }
  const bool has_body = !is_head && reply.status != 204 && reply.status >= 200;
  if (!has_body) {
    reply.is_complete = true;
  } else if (reply.header("transfer-encoding") == "chunked") {
    reply.is_complete = read_chunks(reply.body);
  } else if (!reply.header("content-length").empty()) {
    reply.is_complete = read_exactly(std::stoul(reply.header("content-length")), reply.body);
  } else {
    while (fill()) {
    }
    reply.body = std::exchange(in_, {});
    reply.is_complete = true;
  }
  return reply;
}

bool TestClient::is_closed_within(std::chrono::milliseconds limit) {
  return within(limit, [this] {
    std::array<char, 4096> sink;
    const ssize_t n = ::recv(fd_, sink.data(), sink.size(), MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  });
}

std::string get(std::string_view path, std::string_view header_lines) {
  std::string out = "GET ";
  out += path;
  out += " HTTP/1.1\r\nHost: localhost\r\n";
  out += header_lines;
  return out + "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view header_lines) {
  std::string out = "POST ";
  out += path;
  out += " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  out += header_lines;
  out += "\r\n";
  out += body;
  return out;
}

HttpOptions test_options() {
  HttpOptions options;
  options.port = 0;
  options.version = "0.0-test";
  return options;
}

std::unique_ptr<HttpServer> run_server(HttpOptions options, Handler handler) {
  auto server = HttpServer::listen(std::move(options), std::move(handler));
  if (!server) {
    ADD_FAILURE() << server.error().what;
    std::abort();
  }
  (*server)->start();
  return *std::move(server);
}

void echo(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  HttpReply reply;
  reply.content_type = "text/plain";
  reply.body = request.method + ' ' + request.path + '?' + request.query + ' ' + request.body;
  exchange->reply(std::move(reply));
}

bool sleep_2ms() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return true;
}

}  // namespace kvasir::server::testing
