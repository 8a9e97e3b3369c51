#include "server/http/target.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "server/http/ascii.h"

namespace kvasir::server {
namespace {

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = ascii_lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return invalid("malformed percent-encoding in the path");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return invalid("NUL in the path");
    out.push_back(c);
  }
  return out;
}

// Removes "http://authority" and gives the authority; leaves other targets alone.
std::string_view take_authority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    const std::string_view authority = target.substr(0, end);
    target.remove_prefix(end);
    return authority;
  }
  return {};
}

bool is_ipv4(const std::string& name, in_addr& address) {
  return inet_pton(AF_INET, name.c_str(), &address) == 1;
}

bool is_name_char(char c) {
  return is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || c == '-' || c == '.' ||
         c == '_';
}

}  // namespace

Result<Target> parse_target(std::string_view target) {
  Target out;
  if (target == "*") return Target{"*", "", ""};
  const bool is_origin_form = !target.empty() && target.front() == '/';
  if (!is_origin_form) {
    out.authority = take_authority(target);
    if (out.authority.empty()) return invalid("malformed request target");
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, mark);
  if (mark < target.size()) out.query = target.substr(mark + 1);
  KVASIR_TRY(out.path, percent_decode(path.empty() ? "/" : path));
  return out;
}

std::optional<HostPort> parse_host(std::string_view text) {
  HostPort out;
  std::string_view rest;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    out.name = to_lower(text.substr(1, close - 1));
    out.is_ipv6 = true;
    in6_addr address{};
    if (inet_pton(AF_INET6, out.name.c_str(), &address) != 1) return std::nullopt;
    rest = text.substr(close + 1);
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    out.name = to_lower(text.substr(0, colon));
    if (!std::all_of(out.name.begin(), out.name.end(), is_name_char)) return std::nullopt;
    rest = text.substr(colon);
  }
  if (!rest.empty() && rest.front() != ':') return std::nullopt;
  if (!rest.empty()) out.port = rest.substr(1);
  if (out.port.size() > 5 || !std::all_of(out.port.begin(), out.port.end(), is_digit)) {
    return std::nullopt;
  }
  if (!out.name.empty() && out.name.back() == '.') out.name.pop_back();  // a rooted name
  if (out.name.empty()) return std::nullopt;
  return out;
}

bool is_loopback_name(const HostPort& host) noexcept {
  if (host.is_ipv6) {
    in6_addr address{};
    return inet_pton(AF_INET6, host.name.c_str(), &address) == 1 && IN6_IS_ADDR_LOOPBACK(&address);
  }
  in_addr address{};
  if (is_ipv4(host.name, address)) return (ntohl(address.s_addr) >> 24) == 127;
  return host.name == "localhost";
}

bool is_ip_literal(const HostPort& host) noexcept {
  in_addr address{};
  return host.is_ipv6 || is_ipv4(host.name, address);
}

}  // namespace kvasir::server
