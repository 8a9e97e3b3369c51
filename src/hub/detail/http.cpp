#include "hub/detail/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>

#include "base/check.h"

namespace kvasir::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr std::size_t kMaxHeaderValue = 4096;
constexpr const char* kUserAgent = "kvasir/0.1";

struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
};

struct FreeUrl {
  void operator()(CURLU* url) const noexcept { curl_url_cleanup(url); }
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
  std::string out = text;
  curl_free(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return out;
}

std::optional<Origin> origin_of(const std::string& text) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  return Origin{part_of(url.get(), CURLUPART_SCHEME), part_of(url.get(), CURLUPART_HOST),
                part_of(url.get(), CURLUPART_PORT)};
}

void init_library() {
  static std::once_flag once;
  std::call_once(once, [] { KVASIR_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

struct FreeList {
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
};

// One hop: what the callbacks of the library see.
struct Hop {
  CURL* curl = nullptr;
  const BodyFn* body = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  HttpReply reply;
  bool has_stopped = false;

  bool is_cancelled() const { return cancel && *cancel; }
};

void keep_header(HttpHeaders& headers, std::string_view name, std::string_view value) {
  if (value.size() > kMaxHeaderValue) return;
  std::string key(name);
  std::transform(key.begin(), key.end(), key.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  struct Wanted {
    std::string_view name;
    std::string HttpHeaders::*field;
  };
  constexpr std::array<Wanted, 7> kWanted{Wanted{"etag", &HttpHeaders::etag},
                                          Wanted{"content-range", &HttpHeaders::content_range},
                                          Wanted{"retry-after", &HttpHeaders::retry_after},
                                          Wanted{"x-error-code", &HttpHeaders::error_code},
                                          Wanted{"x-error-message", &HttpHeaders::error_message},
                                          Wanted{"x-linked-etag", &HttpHeaders::linked_etag},
                                          Wanted{"x-linked-size", &HttpHeaders::linked_size}};
  for (const Wanted& wanted : kWanted) {
    if (key == wanted.name) headers.*wanted.field = value;
  }
  if (key != "content-length") return;
  std::uint64_t n = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), n);
  if (end.ec == std::errc() && end.ptr == value.data() + value.size()) headers.content_length = n;
}

std::size_t on_header(char* data, std::size_t size, std::size_t n, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  const std::string_view line(data, size * n);
  if (line.starts_with("HTTP/")) hop.reply.headers = {};
  if (const std::size_t colon = line.find(':'); colon != std::string_view::npos)
    keep_header(hop.reply.headers, trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  return size * n;
}

std::size_t on_body(char* data, std::size_t size, std::size_t n, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  const std::size_t n_bytes = size * n;
  if (hop.is_cancelled()) return CURL_WRITEFUNC_ERROR;
  curl_easy_getinfo(hop.curl, CURLINFO_RESPONSE_CODE, &hop.reply.status);
  if (hop.reply.status < 200 || hop.reply.status >= 300) return n_bytes;
  if ((*hop.body)(hop.reply, std::as_bytes(std::span(data, n_bytes)))) return n_bytes;
  hop.has_stopped = true;
  return CURL_WRITEFUNC_ERROR;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Hop*>(user)->is_cancelled() ? 1 : 0;
}

Transport transport_of(CURLcode code, const Hop& hop) {
  if (hop.has_stopped) return Transport::stopped;
  if (hop.is_cancelled()) return Transport::cancelled;
  switch (code) {
    case CURLE_OK:
      return Transport::done;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return Transport::dropped;
    default:
      return Transport::failed;
  }
}

}  // namespace

bool HttpOutcome::is_transient() const noexcept {
  if (transport == Transport::dropped) return true;
  return transport == Transport::done &&
         (reply.status >= 500 || reply.status == 429 || reply.status == 408);
}

struct HttpClient::Impl {
  const HubOptions& options;
  const std::atomic<bool>* cancel;
  std::optional<Origin> home;  // where the token may go
  CURL* curl;

  Impl(const HubOptions& hub_options, const std::atomic<bool>* cancel_flag)
      : options(hub_options),
        cancel(cancel_flag),
        home(origin_of(hub_options.endpoint)),
        curl(curl_easy_init()) {
    KVASIR_CHECK(curl != nullptr);
  }
  ~Impl() { curl_easy_cleanup(curl); }

  void set_up(const HttpRequest& request, Hop& hop) const {
    curl_easy_reset(curl);  // keeps the connections
    hop.curl = curl;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, kUserAgent);
    curl_easy_setopt(curl, CURLOPT_NOBODY, request.is_head ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(options.connect_timeout.count()));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                     static_cast<long>(options.stall_timeout.count()));
    if (!options.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_file.c_str());
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &hop);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &hop);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &hop);
  }

  // One reply, redirect or not. next: where it points, "" when it is the last.
  HttpOutcome one_hop(const HttpRequest& request, const BodyFn& body, std::string& next) const {
    const auto origin = origin_of(request.url);
    if (!origin) return {Transport::failed, {}, "not a URL: " + request.url};
    Hop hop{nullptr, &body, cancel, {}, false};
    set_up(request, hop);
    std::unique_ptr<curl_slist, FreeList> headers;
    if (!options.token.empty() && origin == home) {
      headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + options.token).c_str()));
      curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    }
    curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
    if (request.from_byte > 0)
      curl_easy_setopt(curl, CURLOPT_RANGE, (std::to_string(request.from_byte) + "-").c_str());
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &hop.reply.status);
    const char* redirect = nullptr;
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &redirect);
    next = code == CURLE_OK && redirect ? redirect : "";
    const Transport transport = transport_of(code, hop);
    return {transport, std::move(hop.reply),
            transport == Transport::cancelled ? "cancelled" : curl_easy_strerror(code)};
  }

  // Why a redirect is not followed; "" when it is.
  static std::string refusal(const std::string& from, const std::string& to) {
    const auto old_origin = origin_of(from), new_origin = origin_of(to);
    if (!new_origin) return "redirected to something that is not a URL";
    if (old_origin->scheme == "https" && new_origin->scheme != "https")
      return "redirected from https to " + new_origin->scheme;
    return {};
  }
};

HttpClient::HttpClient(const HubOptions& options, const std::atomic<bool>* cancel) {
  init_library();
  impl_ = std::make_unique<Impl>(options, cancel);
}
HttpClient::~HttpClient() = default;

HttpOutcome HttpClient::fetch(const HttpRequest& request, const BodyFn& body) {
  HttpRequest hop = request;
  std::string linked_etag, linked_size;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    std::string next;
    HttpOutcome outcome = impl_->one_hop(hop, body, next);
    HttpHeaders& headers = outcome.reply.headers;
    if (linked_etag.empty()) linked_etag = headers.linked_etag;
    if (linked_size.empty()) linked_size = headers.linked_size;
    headers.linked_etag = linked_etag;
    headers.linked_size = linked_size;
    // A HEAD asks for facts only: where the bytes are need not be asked once they are known.
    if (next.empty() || (request.is_head && !linked_etag.empty())) return outcome;
    if (std::string why = Impl::refusal(hop.url, next); !why.empty())
      return {Transport::failed, {}, std::move(why)};
    hop.url = next;
  }
  return {Transport::failed, {}, "more than " + std::to_string(kMaxRedirects) + " redirects"};
}

std::string url_escape(std::string_view text, bool keep_slash) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' || c == '~';
    if (is_plain || (keep_slash && c == '/')) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

}  // namespace kvasir::hub
