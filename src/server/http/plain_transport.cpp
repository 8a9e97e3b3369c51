#include <poll.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/write.hpp>

#include "server/http/socket_transport.h"

namespace kvasir::server {

using boost::system::error_code;

bool is_hung_up(int fd) noexcept {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Task<void> discard_rest(Socket& socket) {
  std::array<char, 4096> sink;
  error_code ec;
  while (!ec) {
    co_await socket.async_read_some(asio::buffer(sink), asio::redirect_error(kAwait, ec));
  }
}

namespace {

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}

  Task<bool> handshake() override { co_return true; }

  Task<std::size_t> read_some(asio::mutable_buffer into) override {
    error_code ec;
    const std::size_t n = co_await socket_.async_read_some(into, asio::redirect_error(kAwait, ec));
    co_return n;
  }

  Task<std::size_t> write_some(const Pieces& pieces) override {
    error_code ec;
    const std::size_t n =
        co_await socket_.async_write_some(pieces, asio::redirect_error(kAwait, ec));
    co_return n;
  }

  Task<void> linger() override {
    error_code ec;
    socket_.shutdown(Socket::shutdown_send, ec);
    if (!ec) co_await discard_rest(socket_);
  }

  void cancel() override {
    error_code ignored;
    socket_.cancel(ignored);
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

  bool is_peer_gone() const override {
    return is_hung_up(const_cast<Socket&>(socket_).native_handle());
  }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<Transport> make_plain_transport(Socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace kvasir::server
