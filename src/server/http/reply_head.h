// The bytes of a reply around its body, and the access log's line. Pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/exchange.h"

namespace kvasir::server {

// What is remembered of a request while it is answered.
struct RequestFacts {
  std::string method;
  std::string path;
  std::string id;
  int minor = 1;                  // HTTP/1.minor
  bool wants_keep_alive = false;  // and we could: the whole request was read
  Headers headers;                // of the reply, besides its own (SRV-6, CORS)
  std::chrono::steady_clock::time_point started;

  bool is_head() const noexcept { return method == "HEAD"; }
};

enum class Framing : std::uint8_t { length, chunked, until_close };

// The status line and all headers, with the empty line. `body_bytes`: for Framing::length.
// Characters that would end a header early become spaces.
std::string write_reply_head(const HttpReply& reply,
                             const RequestFacts& facts,
                             Framing framing,
                             std::size_t body_bytes,
                             bool keep_alive);

bool has_no_body(int status) noexcept;  // 204, 304

// "POST /v1/models 200 12 ms 345 B req_…": never a query or a body. `path` is escaped: it is the
// client's.
std::string access_line(const RequestFacts& facts,
                        int status,
                        std::chrono::steady_clock::time_point now,
                        std::uint64_t n_bytes);

}  // namespace kvasir::server
