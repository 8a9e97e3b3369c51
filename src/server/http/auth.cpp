#include "server/http/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "server/http/ascii.h"

namespace kvasir::server {
namespace {

// The tokens a request presents: an Authorization of another scheme counts as none.
std::vector<std::string_view> presented_keys(const HttpRequest& request) {
  static constexpr std::string_view kBearer = "bearer ";
  std::vector<std::string_view> keys;
  for (const auto& [name, value] : request.headers) {
    const std::string_view text = value;
    if (name == "x-api-key") keys.push_back(trim(text));
    if (name == "authorization" && equals_ignoring_case(text.substr(0, kBearer.size()), kBearer)) {
      keys.push_back(trim(text.substr(kBearer.size())));
    }
  }
  constexpr std::size_t kMaxPresented = 4;  // each costs a digest
  if (keys.size() > kMaxPresented) keys.resize(kMaxPresented);
  return keys;
}

bool is_or_below(std::string_view path, std::string_view root) {
  return path.substr(0, root.size()) == root &&
         (path.size() == root.size() || path[root.size()] == '/');
}

}  // namespace

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::optional<std::size_t> presented_key(const HttpRequest& request,
                                         std::span<const KeyDigest> keys) {
  std::optional<std::size_t> found;
  if (keys.empty()) return found;
  for (const std::string_view key : presented_keys(request)) {
    const KeyDigest digest = digest_of(key);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (CRYPTO_memcmp(digest.data(), keys[i].data(), digest.size()) == 0) found = i;
    }
  }
  return found;
}

bool is_admin_request(std::string_view method, std::string_view path) noexcept {
  if (is_or_below(path, "/admin")) return true;
  const bool reads = method == "GET" || method == "HEAD";
  return !reads && (is_or_below(path, "/v1/adapters") || is_or_below(path, "/adapters"));
}

Auth::Auth(const std::vector<std::string>& api_keys,
           const std::string& admin_key,
           std::vector<std::string> open_paths)
    : open_paths_(std::move(open_paths)) {
  for (const std::string& key : api_keys) keys_.push_back(digest_of(key));
  if (!admin_key.empty()) admin_.push_back(digest_of(admin_key));
}

std::optional<HttpError> Auth::refuse(const HttpRequest& request) const {
  if (presented_key(request, admin_)) return std::nullopt;
  if (is_admin_request(request.method, request.path)) {
    if (!admin_.empty()) {
      return HttpError{403, "admin_key_required", "this request needs the administrator's key"};
    }
    if (!request.peer_is_loopback) {
      return HttpError{403, "admin_key_required",
                       "without an administrator's key this request is open to local clients only"};
    }
  }
  const bool is_open =
      std::find(open_paths_.begin(), open_paths_.end(), request.path) != open_paths_.end();
  if (is_open || keys_.empty() || presented_key(request, keys_)) return std::nullopt;
  return HttpError{
      401, "invalid_api_key",
      "missing or wrong API key: send it as 'Authorization: Bearer KEY' or 'x-api-key'"};
}

}  // namespace kvasir::server
