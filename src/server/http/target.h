// The request target of RFC 9112 §3.2, split and decoded. Pure functions of untrusted bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::server {

struct Target {
  std::string path;       // percent-decoded; "*" of `OPTIONS *`
  std::string query;      // as sent, without '?'
  std::string authority;  // of the absolute form ("http://host:1/x" → "host:1"), else empty
};

// Origin form, absolute form (http, https) or "*". Errors: anything else, a '%' without two
// hexadecimal digits, a NUL in the path.
Result<Target> parse_target(std::string_view target);

// A Host value or authority: name or literal and optional port. `name` is lower case and without
// the brackets of an IPv6 literal. nullopt: malformed (also user info).
struct HostPort {
  std::string name;
  std::string port;  // digits, maybe empty
  bool is_ipv6 = false;
};
std::optional<HostPort> parse_host(std::string_view text);

bool is_loopback_name(const HostPort& host) noexcept;  // localhost, 127.0.0.0/8, ::1
bool is_ip_literal(const HostPort& host) noexcept;

}  // namespace kvasir::server
