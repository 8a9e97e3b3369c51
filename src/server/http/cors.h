// SRV-5: which web pages may read our answers, and answers to their preflights (C35). Credentials
// (cookies) are never allowed. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace kvasir::server {

// http or https on localhost, 127.0.0.0/8 or [::1], any port.
bool is_loopback_origin(std::string_view origin);

// Neither a loopback origin nor that of this server as the client addressed it (`host`: the Host
// header, null: none). "null" (sandboxed pages, files) is foreign.
bool is_foreign_origin(std::string_view origin, const std::string* host);

class Cors {
 public:
  explicit Cors(std::vector<std::string> allowed_origins);  // empty: loopback; "*": any

  // Headers of every reply to this request: allow-origin when its Origin is allowed.
  Headers reply_headers(const HttpRequest& request) const;

  // 204 for OPTIONS; what a preflight asks for is granted to allowed origins only.
  HttpReply preflight(const HttpRequest& request) const;

 private:
  bool allows(std::string_view origin) const;

  std::vector<std::string> allowed_;  // lower case, without a trailing '/'
  bool any_ = false;
};

}  // namespace kvasir::server
