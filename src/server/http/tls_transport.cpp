#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "server/http/socket_transport.h"

namespace kvasir::server {
namespace {

using boost::system::error_code;

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, std::shared_ptr<asio::ssl::context> context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  Task<bool> handshake() override {
    error_code ec;
    co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(kAwait, ec));
    co_return !ec;
  }

  Task<std::size_t> read_some(asio::mutable_buffer into) override {
    error_code ec;
    const std::size_t n = co_await stream_.async_read_some(into, asio::redirect_error(kAwait, ec));
    co_return ec ? 0 : n;
  }

  Task<std::size_t> write_some(const Pieces& pieces) override {
    error_code ec;
    const std::size_t n =
        co_await stream_.async_write_some(pieces, asio::redirect_error(kAwait, ec));
    co_return ec ? 0 : n;
  }

  // close_notify, without which the peer could not tell our end from a cut line; the answer to it
  // is waited for until something else arrives, which discard_rest then drops.
  Task<void> linger() override {
    error_code ec;
    if (SSL_is_init_finished(stream_.native_handle()) != 0) {
      co_await stream_.async_shutdown(asio::redirect_error(kAwait, ec));
    }
    ec = {};
    stream_.next_layer().shutdown(Socket::shutdown_send, ec);
    if (!ec) co_await discard_rest(stream_.next_layer());
  }

  void cancel() override {
    error_code ignored;
    stream_.next_layer().cancel(ignored);
  }

  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

  bool is_peer_gone() const override {
    return is_hung_up(const_cast<TlsTransport*>(this)->stream_.next_layer().native_handle());
  }

 private:
  const std::shared_ptr<asio::ssl::context> context_;  // co-owner: the server
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<Transport> make_tls_transport(Socket socket,
                                              std::shared_ptr<asio::ssl::context> context) {
  return std::make_unique<TlsTransport>(std::move(socket), std::move(context));
}

}  // namespace kvasir::server
