#include "server/http/reply_head.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "server/http/ascii.h"
#include "server/http/http_error.h"

namespace kvasir::server {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  const auto printable = [](char c) {
    return (c >= 0 && c < ' ' && c != '\t') || c == '\x7f' ? ' ' : c;
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_token_char)) return;
  out += name;
  out += ": ";
  std::transform(value.begin(), value.end(), std::back_inserter(out), printable);
  out += "\r\n";
}

// IMF-fixdate of RFC 9110 §5.6.7, in English whatever the locale.
std::string http_date() {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  std::array<char, 64> text{};
  const int n = std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                              kDays[static_cast<std::size_t>(t.tm_wday)], t.tm_mday,
                              kMonths[static_cast<std::size_t>(t.tm_mon)], t.tm_year + 1900,
                              t.tm_hour, t.tm_min, t.tm_sec);
  return {text.data(), static_cast<std::size_t>(n)};
}

}  // namespace

bool has_no_body(int status) noexcept { return status == 204 || status == 304; }

std::string write_reply_head(const HttpReply& reply,
                             const RequestFacts& facts,
                             Framing framing,
                             std::size_t body_bytes,
                             bool keep_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(reply.status) + ' ';
  out += reason_phrase(reply.status);
  out += "\r\n";
  append_header(out, "Date", http_date());
  if (!has_no_body(reply.status)) {
    if (!reply.content_type.empty()) append_header(out, "Content-Type", reply.content_type);
    if (framing == Framing::length) {
      append_header(out, "Content-Length", std::to_string(body_bytes));
    }
    if (framing == Framing::chunked) append_header(out, "Transfer-Encoding", "chunked");
  }
  if (!keep_alive) append_header(out, "Connection", "close");
  if (keep_alive && facts.minor == 0) append_header(out, "Connection", "keep-alive");
  for (const auto& [name, value] : reply.headers) append_header(out, name, value);
  for (const auto& [name, value] : facts.headers) append_header(out, name, value);
  out += "\r\n";
  return out;
}

std::string access_line(const RequestFacts& facts,
                        int status,
                        std::chrono::steady_clock::time_point now,
                        std::uint64_t n_bytes) {
  constexpr std::size_t kMaxPath = 256;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - facts.started);
  std::string line = facts.method.empty() ? "-" : facts.method;
  line += ' ';
  for (const char c : std::string_view(facts.path).substr(0, kMaxPath)) {
    line.push_back(is_visible(c) ? c : '?');
  }
  if (facts.path.empty()) line.push_back('-');
  line += ' ' + std::to_string(status) + ' ' + std::to_string(ms.count()) + " ms ";
  line += std::to_string(n_bytes) + " B " + facts.id;
  return line;
}

}  // namespace kvasir::server
