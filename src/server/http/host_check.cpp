#include "server/http/host_check.h"

#include <algorithm>

#include "server/http/ascii.h"
#include "server/http/target.h"

namespace kvasir::server {

bool is_own_host(const std::string& host, const std::string& bind_name) {
  const std::optional<HostPort> parsed = parse_host(trim(host));
  if (!parsed) return false;
  const bool is_bind_name = !bind_name.empty() && parsed->name == to_lower(bind_name);
  return is_bind_name || is_loopback_name(*parsed);
}

std::optional<HttpError> check_host(const HttpRequest& request, int minor, const HostRule& rule) {
  const auto is_host = [](const auto& header) { return header.first == "host"; };
  const auto n_hosts = std::count_if(request.headers.begin(), request.headers.end(), is_host);
  if (n_hosts == 0 && minor == 0) return std::nullopt;
  if (n_hosts != 1) {
    return HttpError{400, "invalid_request",
                     n_hosts == 0 ? "missing Host header" : "more than one Host header"};
  }
  const std::string& host = *request.header("host");
  // RFC 9112 §3.2 allows an empty Host; no name is no foreign name, but not ours either.
  if (!trim(host).empty() && !parse_host(trim(host))) {
    return HttpError{400, "invalid_request", "malformed Host header"};
  }
  if (rule.bound_to_loopback && !is_own_host(host, rule.bind_name)) {
    return HttpError{403, "host_not_allowed", "this Host is not served here"};
  }
  return std::nullopt;
}

bool may_be_rebound(const HttpRequest& request, const std::string& bind_name) {
  const std::string* host = request.header("host");
  if (!host) return false;  // HTTP/1.0: no browser
  const std::optional<HostPort> parsed = parse_host(trim(*host));
  return !parsed || !(is_ip_literal(*parsed) || is_own_host(*host, bind_name));
}

}  // namespace kvasir::server
