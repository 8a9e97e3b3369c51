// One HTTP/1.x request from bytes, in front of Beast's parser (the one place that includes it).
// Untrusted input: sizes are bounded, request smuggling by doubtful lengths is refused. One
// connection's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/http/http_error.h"

namespace kvasir::server {

struct ParserLimits {
  std::size_t max_header_bytes = std::size_t{64} << 10;
  std::size_t max_body_bytes = std::size_t{32} << 20;
};

struct RequestHead {
  std::string method;
  std::string target;
  int minor = 1;    // HTTP/1.minor
  Headers headers;  // names in lower case
  bool wants_keep_alive = false;
  bool expects_continue = false;
  bool is_chunked = false;
  std::optional<std::uint64_t> content_length;
};

class RequestParser {
 public:
  explicit RequestParser(const ParserLimits& limits);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;
  RequestParser& operator=(RequestParser&&) noexcept;

  // Takes from the front of `bytes` what it can use now and returns how much; the caller keeps the
  // rest and presents it again with more behind it. Stops after the head, and after the body.
  std::size_t feed(std::string_view bytes);

  bool has_head() const noexcept;
  bool is_done() const noexcept;
  const std::optional<HttpError>& error()
      const noexcept;  // 400, 413, 431, 501; nothing goes on then

  RequestHead& head() noexcept;  // once has_head(); partial after an error
  std::string& body() noexcept;  // once is_done()

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::server
