#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <utility>

#include "server/http/ascii.h"

namespace kvasir::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

std::string_view to_std(string_view text) { return {text.data(), text.size()}; }

// Collects what Beast's grammar finds. A refusal of our own is put into `refusal`, and `ec` only
// stops the parser.
class Collector final : public http::basic_parser<true> {
 public:
  explicit Collector(const ParserLimits& limits) : limits_(limits) {
    eager(false);
    header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
    body_limit(boost::none);  // judged here, where the answer can be given
  }

  RequestHead head;
  std::string body;
  std::optional<HttpError> refusal;

 private:
  void on_request_impl(
      http::verb, string_view method, string_view target, int version, error_code&) override {
    head.method = to_std(method);
    head.target = to_std(target);
    head.minor = version % 10;
  }

  void on_response_impl(int, string_view, int, error_code&) override {}

  void on_field_impl(http::field name,
                     string_view text,
                     string_view value,
                     error_code& ec) override {
    if (is_header_done()) return;  // trailers mean nothing to us, and must not pose as headers
    std::string field_value(to_std(value));
    if (name == http::field::transfer_encoding) {
      // Any other coding would leave the body's end open to interpretation.
      const bool is_known = equals_ignoring_case(trim(field_value), "chunked");
      if (!is_known) refuse({501, "unsupported_request", "unsupported Transfer-Encoding"}, ec);
      if (is_known && head.minor == 0) bad("Transfer-Encoding in HTTP/1.0", ec);
    }
    // Beast takes "5, 5"; a list is never what a client means.
    const bool is_list = field_value.find(',') != std::string::npos;
    if (name == http::field::content_length && is_list) bad("Content-Length is a list", ec);
    if (name == http::field::expect && equals_ignoring_case(trim(field_value), "100-continue")) {
      head.expects_continue = head.minor > 0;
    }
    head.headers.emplace_back(to_lower(to_std(text)), std::move(field_value));
  }

  void on_header_impl(error_code&) override {
    head.is_chunked = chunked();
    if (const auto length = content_length()) head.content_length = *length;
    head.wants_keep_alive = keep_alive();
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code& ec) override {
    if (!length) return;
    if (*length > limits_.max_body_bytes) return too_large(ec);
    // A length that is only claimed must not cost memory.
    constexpr std::uint64_t kTrusted = std::uint64_t{256} << 10;
    body.reserve(static_cast<std::size_t>(std::min(*length, kTrusted)));
  }

  std::size_t on_body_impl(string_view piece, error_code&) override {
    body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_chunk_header_impl(std::uint64_t size, string_view, error_code& ec) override {
    if (size > limits_.max_body_bytes - body.size()) too_large(ec);
  }

  std::size_t on_chunk_body_impl(std::uint64_t, string_view piece, error_code&) override {
    body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_finish_impl(error_code&) override {}

  void refuse(HttpError error, error_code& ec) {
    refusal = std::move(error);
    ec = http::error::bad_value;
  }
  void bad(std::string message, error_code& ec) {
    refuse({400, "invalid_request", std::move(message)}, ec);
  }
  void too_large(error_code& ec) {
    refuse({413, "request_too_large", "request body too large"}, ec);
  }

  ParserLimits limits_;
};

HttpError headers_too_large() { return {431, "headers_too_large", "request headers too large"}; }

}  // namespace

struct RequestParser::Impl {
  explicit Impl(const ParserLimits& l) : limits(l), parser(l) {}

  void fail(const error_code& ec) {
    if (parser.refusal) {
      error = parser.refusal;
    } else if (ec == http::error::header_limit) {
      error = headers_too_large();
    } else {
      error = HttpError{400, "invalid_request", "malformed HTTP request: " + ec.message()};
    }
  }

  ParserLimits limits;
  Collector parser;
  std::size_t n_header_bytes = 0;  // taken so far
  std::optional<HttpError> error;
};

RequestParser::RequestParser(const ParserLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;

std::size_t RequestParser::feed(std::string_view bytes) {
  if (impl_->error || is_done() || bytes.empty()) return 0;
  const bool in_head = !has_head();
  error_code ec;
  std::size_t n_taken = 0;
  // Not eager, the parser stops after each element: go on within the head or the body.
  do {
    const std::string_view rest = bytes.substr(n_taken);
    n_taken += impl_->parser.put({rest.data(), rest.size()}, ec);
  } while (!ec && !is_done() && n_taken < bytes.size() && in_head == !has_head());
  if (in_head) {
    impl_->n_header_bytes += n_taken;
    const std::size_t n_waiting = has_head() ? 0 : bytes.size() - n_taken;
    if (impl_->n_header_bytes + n_waiting > impl_->limits.max_header_bytes) {
      impl_->error = headers_too_large();
      return n_taken;
    }
  }
  if (ec && ec != http::error::need_more) impl_->fail(ec);
  // What waits inside a body is a chunk's size line or the trailers: never long.
  const bool waits_too_long = bytes.size() - n_taken > impl_->limits.max_header_bytes;
  if (!in_head && !impl_->error && !is_done() && waits_too_long) {
    impl_->error = HttpError{400, "invalid_request", "chunk header or trailers too long"};
  }
  return n_taken;
}

bool RequestParser::has_head() const noexcept { return impl_->parser.is_header_done(); }
bool RequestParser::is_done() const noexcept { return impl_->parser.is_done(); }
const std::optional<HttpError>& RequestParser::error() const noexcept { return impl_->error; }
RequestHead& RequestParser::head() noexcept { return impl_->parser.head; }
std::string& RequestParser::body() noexcept { return impl_->parser.body; }

}  // namespace kvasir::server
