#include "server/http/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvasir::server {
namespace {

using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;

bool is_loopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

Result<Acceptor> open_acceptor(Core& core, const Protocol& protocol) {
  Acceptor acceptor(core.make_strand());
  error_code ec;
  acceptor.open(protocol, ec);
  if (ec) return io_error("cannot make a socket: " + ec.message());
  return acceptor;
}

Result<Listener> listen_at(Core& core, const asio::ip::tcp::endpoint& endpoint) {
  KVASIR_TRY(Acceptor acceptor, open_acceptor(core, Protocol(endpoint.protocol())));
  error_code ec;
  acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(Protocol::endpoint(endpoint), ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    return io_error("cannot listen on " + endpoint.address().to_string() + " port " +
                    std::to_string(endpoint.port()) + ": " + ec.message());
  return Listener{std::move(acceptor), /*is_unix=*/false, is_loopback(endpoint.address())};
}

Result<std::uint16_t> bound_port(const Listener& listener) {
  error_code ec;
  const Protocol::endpoint bound = listener.acceptor.local_endpoint(ec);
  if (ec) return io_error("cannot read the bound port: " + ec.message());
  asio::ip::tcp::endpoint tcp;
  tcp.resize(bound.size());
  std::memcpy(tcp.data(), bound.data(), bound.size());
  return tcp.port();
}

// Frees the path of a socket that nobody listens on any more.
Status remove_stale_socket(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return io_error(path + " exists and is not a socket");
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  error_code ec;
  probe.connect(asio::local::stream_protocol::endpoint(path), ec);
  if (!ec) return io_error("another server listens on " + path);
  if (ec != asio::error::connection_refused) {
    return io_error("cannot tell whether " + path + " is in use: " + ec.message());
  }
  if (::unlink(path.c_str()) != 0) return io_error("cannot remove the stale socket " + path);
  return {};
}

}  // namespace

Result<std::vector<Listener>> listen_tcp(Core& core, const std::string& host, std::uint16_t& port) {
  error_code ec;
  asio::ip::tcp::resolver resolver(core.io());
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto found = resolver.resolve(has_brackets ? host.substr(1, host.size() - 2) : host,
                                      std::to_string(port), asio::ip::resolver_base::passive, ec);
  if (ec) return io_error("cannot resolve the host '" + host + "': " + ec.message());
  std::vector<Listener> listeners;
  std::string why = "the host has no address";
  for (const auto& entry : found) {
    Result<Listener> listener = listen_at(core, {entry.endpoint().address(), port});
    if (!listener) {  // say, IPv6 of "localhost" on a machine without it
      why = listener.error().what;
      continue;
    }
    if (port == 0) {
      KVASIR_TRY(port, bound_port(*listener));
    }
    listeners.push_back(*std::move(listener));
  }
  if (listeners.empty()) return io_error(why);
  return listeners;
}

Result<Listener> listen_unix(Core& core, const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return invalid("unix socket path too long");
  KVASIR_TRY_DO(remove_stale_socket(path));
  KVASIR_TRY(Acceptor acceptor, open_acceptor(core, Protocol(AF_UNIX, 0)));
  // Linux gives the file the socket's own mode, so there is no moment with a wider one.
  ::fchmod(acceptor.native_handle(), S_IRUSR | S_IWUSR);
  error_code ec;
  acceptor.bind(Protocol::endpoint(asio::local::stream_protocol::endpoint(path)), ec);
  if (!ec && ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) {
    ec.assign(errno, boost::system::system_category());
  }
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return io_error("cannot listen on " + path + ": " + ec.message());
  return Listener{std::move(acceptor), /*is_unix=*/true, /*is_loopback=*/false};
}

PeerInfo peer_info(const Listener& listener, const Protocol::endpoint& peer) {
  if (listener.is_unix) return {/*is_loopback=*/true, /*through_loopback=*/false};
  asio::ip::tcp::endpoint tcp;
  if (peer.size() > tcp.capacity()) return {false, listener.is_loopback};
  tcp.resize(peer.size());
  std::memcpy(tcp.data(), peer.data(), peer.size());
  return {is_loopback(tcp.address()), listener.is_loopback};
}

}  // namespace kvasir::server
