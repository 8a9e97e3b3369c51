// What all connections of one server share. Constant but for the flag and the registry.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "server/http/exchange.h"
#include "server/http/gate.h"
#include "server/http/options.h"

namespace kvasir::server {

class Connection;

struct Site {
  Site(HttpOptions o, Handler h) : options(std::move(o)), gate(options), handler(std::move(h)) {}

  const HttpOptions options;
  const Gate gate;
  const Handler handler;
  std::atomic<bool> is_draining{false};  // every reply says `Connection: close`
  std::atomic<std::size_t> n_connections{0};

  std::mutex mutex;
  bool is_stopped = false;  // nothing is added to the registry any more
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
};

struct PeerInfo {
  bool is_loopback = false;       // also of unix sockets
  bool through_loopback = false;  // a TCP listener on a loopback address: Host is checked
};

}  // namespace kvasir::server
