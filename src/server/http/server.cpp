#include "server/http/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/listener.h"
#include "server/http/tls_context.h"

namespace kvasir::server {

using boost::system::error_code;

namespace {

constexpr int kMaxUnsentBytes = 128 << 10;

// Tokens are small and must not wait for acknowledgements; what a reader does not take stays with
// us, where it counts, and does not pile up in the kernel's send buffer (megabytes).
void tune(Socket& socket) {
  error_code ec;
  socket.set_option(asio::ip::tcp::no_delay(true), ec);
  const int n_unsent = kMaxUnsentBytes;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &n_unsent, sizeof(n_unsent));
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions options, Handler handler)
      : core(std::make_shared<Core>(std::max(1, options.n_threads))),
        site(std::make_shared<Site>(std::move(options), std::move(handler))),
        work(asio::make_work_guard(core->io())) {}

  Status open();
  Task<void> accept_loop(Listener& listener);
  Task<void> pause(const Listener& listener);
  void admit(const Listener& listener, Socket socket, const Strand& strand);
  void run_io();
  std::vector<std::shared_ptr<Connection>> all_connections();

  const std::shared_ptr<Core> core;  // co-owners: connections, exchanges
  const std::shared_ptr<Site> site;  // co-owners: connections
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::shared_ptr<asio::ssl::context> tls;  // null: plain
  std::vector<Listener> listeners;
  std::uint16_t port = 0;
  ino_t unix_inode = 0;  // ours to remove
  std::vector<std::thread> threads;
};

Status HttpServer::Impl::open() {
  const HttpOptions& options = site->options;
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return invalid("TLS needs both a certificate and a key");
  }
  if (!options.tls_cert.empty()) {
    KVASIR_TRY(tls, make_tls_context(options.tls_cert, options.tls_key));
  }
  if (!options.host.empty()) {
    port = options.port;
    KVASIR_TRY(listeners, listen_tcp(*core, options.host, port));
  }
  if (!options.unix_path.empty()) {
    KVASIR_TRY(Listener listener, listen_unix(*core, options.unix_path));
    struct stat info {};
    if (::lstat(options.unix_path.c_str(), &info) == 0) unix_inode = info.st_ino;
    listeners.push_back(std::move(listener));
  }
  if (listeners.empty()) return invalid("neither a host nor a unix socket to listen on");
  return {};
}

Task<void> HttpServer::Impl::accept_loop(Listener& listener) {
  while (listener.acceptor.is_open()) {
    if (site->n_connections >= site->options.max_connections) {
      co_await pause(listener);
      continue;
    }
    const Strand strand = core->make_strand();
    error_code ec;
    Socket socket =
        co_await listener.acceptor.async_accept(strand, asio::redirect_error(kAwait, ec));
    if (!ec) {
      admit(listener, std::move(socket), strand);
    } else if (listener.acceptor.is_open() && ec != asio::error::connection_aborted) {
      log::warning("cannot accept a connection: " + ec.message());  // say, no descriptors left
      co_await pause(listener);
    }
  }
}

Task<void> HttpServer::Impl::pause(const Listener& listener) {
  Timer timer(const_cast<Listener&>(listener).acceptor.get_executor());
  timer.expires_after(std::chrono::milliseconds(50));
  error_code ec;
  co_await timer.async_wait(asio::redirect_error(kAwait, ec));
}

void HttpServer::Impl::admit(const Listener& listener, Socket socket, const Strand& strand) {
  error_code ec;
  const auto remote = socket.remote_endpoint(ec);
  if (ec) return;  // gone again
  const PeerInfo peer = peer_info(listener, remote);
  if (!listener.is_unix) tune(socket);
  const bool is_tls = tls && !listener.is_unix;
  auto transport =
      is_tls ? make_tls_transport(std::move(socket), tls) : make_plain_transport(std::move(socket));
  Connection::start(std::make_shared<Connection>(core, strand, std::move(transport), peer, site));
}

void HttpServer::Impl::run_io() {
  for (;;) {
    try {
      core->io().run();
      return;
    } catch (const std::exception& e) {
      log::error(std::string("an HTTP thread went on after: ") + e.what());
    }
  }
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::all_connections() {
  std::vector<std::shared_ptr<Connection>> out;
  std::scoped_lock lock(site->mutex);
  for (const auto& [address, weak] : site->connections) {
    if (auto connection = weak.lock()) out.push_back(std::move(connection));
  }
  return out;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  KVASIR_TRY_DO(impl->open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const noexcept { return impl_->port; }

std::string HttpServer::url() const {
  const HttpOptions& options = impl_->site->options;
  if (options.host.empty()) return "unix:" + options.unix_path;
  const bool is_bare_ipv6 =
      options.host.find(':') != std::string::npos && options.host.front() != '[';
  const std::string host = is_bare_ipv6 ? '[' + options.host + ']' : options.host;
  return (impl_->tls ? "https://" : "http://") + host + ':' + std::to_string(impl_->port);
}

bool HttpServer::is_loopback_only() const noexcept {
  return std::all_of(impl_->listeners.begin(), impl_->listeners.end(),
                     [](const Listener& l) { return l.is_unix || l.is_loopback; });
}

std::size_t HttpServer::n_connections() const noexcept { return impl_->site->n_connections; }

void HttpServer::start() {
  if (!impl_->threads.empty()) return;
  for (Listener& listener : impl_->listeners) {
    asio::co_spawn(listener.acceptor.get_executor(), impl_->accept_loop(listener), asio::detached);
  }
  const int n_threads = std::max(1, impl_->site->options.n_threads);
  for (int i = 0; i < n_threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run_io(); });
  }
}

void HttpServer::stop_accepting() {
  if (impl_->site->is_draining.exchange(true)) return;
  for (Listener& listener : impl_->listeners) {
    asio::post(listener.acceptor.get_executor(), [&listener] {
      error_code ignored;
      listener.acceptor.close(ignored);
    });
  }
  const std::string& path = impl_->site->options.unix_path;
  struct stat info {};
  const bool is_ours = !path.empty() && ::lstat(path.c_str(), &info) == 0 &&
                       info.st_ino == impl_->unix_inode && impl_->unix_inode != 0;
  if (is_ours) ::unlink(path.c_str());
  close_idle();
}

void HttpServer::close_idle() {
  for (const auto& connection : impl_->all_connections()) connection->close_if_idle();
}

void HttpServer::stop() {
  stop_accepting();
  {
    std::scoped_lock lock(impl_->site->mutex);
    impl_->site->is_stopped = true;
  }
  for (const auto& connection : impl_->all_connections()) connection->stop();
  impl_->core->stop();
  impl_->work.reset();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

}  // namespace kvasir::server
