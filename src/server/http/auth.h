// SRV-4: who may ask for what. Keys are kept and compared as SHA-256 digests, every key is looked
// at, and each comparison takes the same time wherever the bytes differ. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/http_error.h"

namespace kvasir::server {

using KeyDigest = std::array<unsigned char, 32>;
KeyDigest digest_of(std::string_view key);

// Which of the keys the request presents; every one is looked at.
std::optional<std::size_t> presented_key(const HttpRequest& request,
                                         std::span<const KeyDigest> keys);

// /admin and below; mounting and unmounting of adapters (anything but GET and HEAD).
bool is_admin_request(std::string_view method, std::string_view path) noexcept;

class Auth {
 public:
  Auth(const std::vector<std::string>& api_keys,
       const std::string& admin_key,
       std::vector<std::string> open_paths);

  // 401 `invalid_api_key`, 403 `admin_key_required`, or nothing to object. The key is the token of
  // `Authorization: Bearer` or of x-api-key; the administrator's key opens everything.
  std::optional<HttpError> refuse(const HttpRequest& request) const;

  bool has_admin_key() const noexcept { return !admin_.empty(); }

 private:
  std::vector<KeyDigest> keys_;   // of the API
  std::vector<KeyDigest> admin_;  // none or one
  std::vector<std::string> open_paths_;
};

}  // namespace kvasir::server
