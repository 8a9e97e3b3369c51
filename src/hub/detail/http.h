// HttpClient: GET and HEAD over libcurl, as a hub needs them. Redirects are followed here, not by
// the library, so that the token can only reach the endpoint's own origin and https never becomes
// http. One thread a client; connections are kept between calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/options.h"

namespace kvasir::hub {

struct HttpHeaders {
  std::string etag, content_range, retry_after, error_code, error_message;
  std::optional<std::uint64_t> content_length;
  // Of the first reply that had them: a redirect to where the bytes are names the file.
  std::string linked_etag, linked_size;
};

struct HttpReply {
  long status = 0;
  HttpHeaders headers;
};

enum class Transport : std::uint8_t {
  done,     // a whole reply; look at its status
  stopped,  // the body function said so
  cancelled,
  dropped,  // connection refused, cut or silent: may work when tried again
  failed    // will not: certificate, URL, too many redirects
};

struct HttpOutcome {
  Transport transport = Transport::failed;
  HttpReply reply;
  std::string what;  // why, unless done

  bool is_success() const noexcept {
    return transport == Transport::done && reply.status >= 200 && reply.status < 300;
  }
  bool is_transient() const noexcept;  // worth another try: dropped, 408, 429, 5xx
};

struct HttpRequest {
  std::string url;
  bool is_head = false;
  std::uint64_t from_byte = 0;  // above 0: asks for the rest only
};

// Bytes of a 2xx body as they come; false stops the transfer.
using BodyFn = std::function<bool(const HttpReply&, std::span<const std::byte>)>;

class HttpClient {
 public:
  // cancel may be null; both outlive the client.
  HttpClient(const HubOptions& options, const std::atomic<bool>* cancel);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  HttpOutcome fetch(const HttpRequest& request, const BodyFn& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One path segment or query value of a URL; '/' is kept when asked.
std::string url_escape(std::string_view text, bool keep_slash);

}  // namespace kvasir::hub
