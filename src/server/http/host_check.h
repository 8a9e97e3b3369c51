// SRV-5: the Host header against DNS rebinding. A hostile page can make its own name resolve to
// 127.0.0.1, but cannot make the browser send another Host. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "server/http/exchange.h"
#include "server/http/http_error.h"

namespace kvasir::server {

struct HostRule {
  bool bound_to_loopback = true;  // the listener the request came through; false: unix sockets too
  std::string bind_name;          // --host as given
};

// A loopback name or address, or the bind name; with or without a port.
bool is_own_host(const std::string& host, const std::string& bind_name);

// 400 when an HTTP/1.1 request has no Host, several, or a malformed one; 403 when it came through a
// loopback listener under a foreign name. `minor`: the version's, 0 or 1.
std::optional<HttpError> check_host(const HttpRequest& request, int minor, const HostRule& rule);

// Administration without a key trusts the loopback peer: then also on other listeners the name must
// be ours or an address, which no rebinding can fake.
bool may_be_rebound(const HttpRequest& request, const std::string& bind_name);

}  // namespace kvasir::server
