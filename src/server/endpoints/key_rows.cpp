#include "server/endpoints/key_rows.h"

#include <optional>

namespace kvasir::server {
namespace {

std::vector<KeyDigest> digests_of(const std::vector<std::string>& keys) {
  std::vector<KeyDigest> out;
  for (const std::string& key : keys) out.push_back(digest_of(key));
  return out;
}

}  // namespace

KeyRows::KeyRows(const std::vector<std::string>& api_keys, std::uint32_t limit)
    : limit_(limit), keys_(digests_of(api_keys)), n_rows_(keys_.size(), 0) {}

std::variant<KeyRows::Lease, ApiError> KeyRows::take(const HttpRequest& request, std::uint32_t n) {
  if (limit_ == 0) return Lease();
  const std::optional<std::size_t> key = presented_key(request, keys_);
  if (!key) return Lease();
  if (n > limit_)
    return bad_request("one API key may have " + std::to_string(limit_) + " rows at once, not " +
                       std::to_string(n));
  const std::lock_guard lock(mutex_);
  if (n_rows_[*key] + n > limit_) {
    ApiError error;
    error.status = 429;
    error.code = "queue_full";
    error.message = "this API key has " + std::to_string(n_rows_[*key]) + " of the " +
                    std::to_string(limit_) + " rows that it may have at once";
    return error;
  }
  n_rows_[*key] += n;
  return Lease(*this, *key, n);
}

void KeyRows::Lease::release() noexcept {
  KeyRows* const rows = std::exchange(rows_, nullptr);
  if (!rows) return;
  const std::lock_guard lock(rows->mutex_);
  rows->n_rows_[key_] -= n_;
}

}  // namespace kvasir::server
