#include "server/http/cors.h"

#include <algorithm>
#include <optional>

#include "server/http/ascii.h"
#include "server/http/target.h"

namespace kvasir::server {
namespace {

constexpr std::string_view kMethods = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
constexpr std::string_view kHeaders =
    "authorization, content-type, x-api-key, x-request-id, anthropic-version, anthropic-beta";
constexpr std::string_view kExposed = "x-request-id, x-kvasir-version, retry-after, warning";

// The authority of an http(s) origin; nullopt: anything else.
std::optional<HostPort> origin_host(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (equals_ignoring_case(origin.substr(0, scheme.size()), scheme)) {
      return parse_host(origin.substr(scheme.size()));
    }
  }
  return std::nullopt;
}

std::string_view origin_scheme(std::string_view origin) {
  return origin.substr(0, std::min(origin.find(':'), origin.size()));
}

std::string effective_port(const HostPort& host, std::string_view scheme) {
  if (!host.port.empty()) return host.port;
  return equals_ignoring_case(scheme, "https") ? "443" : "80";
}

// kHeaders, and those the client asks for besides (SDKs add their own): well-formed names only.
std::string granted_headers(const std::string* asked) {
  constexpr std::size_t kMaxBytes = 2048;
  std::string out(kHeaders);
  std::string_view rest = asked ? std::string_view(*asked) : std::string_view();
  while (!rest.empty() && out.size() < kMaxBytes) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string name = to_lower(trim(rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const bool is_name =
        !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), is_token_char);
    const bool is_new = (", " + out + ",").find(", " + name + ",") == std::string::npos;
    if (is_name && is_new) out += ", " + name;
  }
  return out;
}

}  // namespace

bool is_loopback_origin(std::string_view origin) {
  const std::optional<HostPort> host = origin_host(origin);
  return host && is_loopback_name(*host);
}

bool is_foreign_origin(std::string_view origin, const std::string* host) {
  const std::optional<HostPort> theirs = origin_host(origin);
  if (!theirs) return true;
  if (is_loopback_name(*theirs)) return false;
  const std::optional<HostPort> ours = host ? parse_host(trim(*host)) : std::nullopt;
  const std::string_view scheme = origin_scheme(origin);
  return !ours || ours->name != theirs->name ||
         effective_port(*ours, scheme) != effective_port(*theirs, scheme);
}

Cors::Cors(std::vector<std::string> allowed_origins) {
  for (const std::string& origin : allowed_origins) {
    std::string text = to_lower(trim(origin));
    if (!text.empty() && text.back() == '/') text.pop_back();
    any_ |= text == "*";
    if (!text.empty()) allowed_.push_back(std::move(text));
  }
}

bool Cors::allows(std::string_view origin) const {
  if (any_) return true;
  if (allowed_.empty()) return is_loopback_origin(origin);
  return std::find(allowed_.begin(), allowed_.end(), to_lower(origin)) != allowed_.end();
}

Headers Cors::reply_headers(const HttpRequest& request) const {
  Headers headers;
  if (!any_) headers.emplace_back("Vary", "Origin");  // caches must not mix origins' replies
  const std::string* origin = request.header("origin");
  if (!origin || !allows(*origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any_ ? "*" : *origin);
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  return headers;
}

HttpReply Cors::preflight(const HttpRequest& request) const {
  HttpReply reply;
  reply.status = 204;
  reply.content_type.clear();
  reply.headers.emplace_back("Allow", kMethods);
  const std::string* origin = request.header("origin");
  if (!origin || !allows(*origin)) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", kMethods);
  reply.headers.emplace_back("Access-Control-Allow-Headers",
                             granted_headers(request.header("access-control-request-headers")));
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

}  // namespace kvasir::server
