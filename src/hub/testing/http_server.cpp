#include "hub/testing/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "base/check.h"

namespace kvasir::hub::testing {
namespace {

constexpr std::size_t kMaxHead = 1 << 16;
constexpr int kPollMs = 20, kReadLimitMs = 5000;

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string read_head(int fd) {
  std::string head;
  while (head.size() < kMaxHead && head.find("\r\n\r\n") == std::string::npos) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kReadLimitMs) <= 0) break;
    char bytes[4096];
    const ssize_t n = ::recv(fd, bytes, sizeof(bytes), 0);
    if (n <= 0) break;
    head.append(bytes, static_cast<std::size_t>(n));
  }
  return head;
}

Request parse(const std::string& head) {
  Request out;
  std::istringstream in(head);
  in >> out.method >> out.path;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line) && line.size() > 1) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string value = line.substr(colon + 1);
    value.erase(0, value.find_first_not_of(' '));
    while (!value.empty() && value.back() == '\r') value.pop_back();
    out.headers[name] = value;
  }
  return out;
}

}  // namespace

std::string Request::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  KVASIR_CHECK(::bind(listener_, generic, size) == 0 && ::listen(listener_, 64) == 0);
  KVASIR_CHECK(::getsockname(listener_, generic, &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

HttpServer::~HttpServer() {
  is_stopping_ = true;
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
  ::close(listener_);
}

std::string HttpServer::url(const std::string& host) const {
  return "http://" + host + ":" + std::to_string(port_);
}

std::vector<Request> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::forget_requests() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
}

void HttpServer::accept_loop() {
  while (!is_stopping_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, kPollMs) <= 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    connections_.emplace_back([this, fd] {
      serve(fd);
      ::close(fd);
    });
  }
}

void HttpServer::serve(int fd) {
  const std::string head = read_head(fd);
  if (head.find("\r\n\r\n") == std::string::npos) return;
  const Request request = parse(head);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  send_reply(fd, request, handler_(request));
}

void HttpServer::send_reply(int fd, const Request& request, const Reply& reply) const {
  const bool is_head = request.method == "HEAD";
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\nConnection: close\r\n";
  for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
  head += "Content-Length: " +
          std::to_string(reply.content_length ? reply.content_length : reply.body.size()) +
          "\r\n\r\n";
  if (!send_all(fd, head) || is_head) return;
  const std::size_t end = std::min(reply.cut_after.value_or(reply.body.size()), reply.body.size());
  for (std::size_t at = 0; at < end && !is_stopping_; at += reply.piece_bytes) {
    const std::size_t n = std::min(reply.piece_bytes, end - at);
    if (!send_all(fd, std::string_view(reply.body).substr(at, n))) return;
    if (reply.delay.count() > 0) std::this_thread::sleep_for(reply.delay);
  }
  if (end == reply.body.size()) return;
  ::shutdown(fd, SHUT_WR);  // everything sent arrives, then the stream ends early
}

}  // namespace kvasir::hub::testing
