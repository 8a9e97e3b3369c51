// Listening sockets: TCP on every address a name has, and a private unix socket.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http/core.h"
#include "server/http/site.h"

namespace kvasir::server {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol, Strand>;

struct Listener {
  Acceptor acceptor;
  bool is_unix = false;
  bool is_loopback = false;  // bound to a loopback address
};

// One listener an address of `host`; `port` 0 takes a free one, the same for all, and is set to it.
// Fails when no address can be bound.
Result<std::vector<Listener>> listen_tcp(Core& core, const std::string& host, std::uint16_t& port);

// Mode 0600 from the start. A socket left behind by a dead server is replaced; one that answers,
// or a file of another kind, is an error.
Result<Listener> listen_unix(Core& core, const std::string& path);

// Facts of an accepted connection.
PeerInfo peer_info(const Listener& listener, const asio::generic::stream_protocol::endpoint& peer);

}  // namespace kvasir::server
