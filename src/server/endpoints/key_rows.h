// KeyRows: how many rows each API key has, and no more than it may have (SCH-44,
// --max-rows-per-key). Rows count from submission, waiting ones too, so that one key cannot fill
// the queue either. Requests without a key of the API are not bounded. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/endpoints/api_error.h"
#include "server/http/auth.h"

namespace kvasir::server {

class KeyRows {
 public:
  // limit 0: none.
  KeyRows(const std::vector<std::string>& api_keys, std::uint32_t limit);

  // Gives the rows back when it goes away.
  class Lease {
   public:
    Lease() = default;
    Lease(KeyRows& rows, std::size_t key, std::uint32_t n) : rows_(&rows), key_(key), n_(n) {}
    Lease(Lease&& other) noexcept
        : rows_(std::exchange(other.rows_, nullptr)), key_(other.key_), n_(other.n_) {}
    Lease& operator=(Lease&& other) noexcept {
      release();
      rows_ = std::exchange(other.rows_, nullptr);
      key_ = other.key_;
      n_ = other.n_;
      return *this;
    }
    ~Lease() { release(); }
    void release() noexcept;

   private:
    KeyRows* rows_ = nullptr;
    std::size_t key_ = 0;
    std::uint32_t n_ = 0;
  };
  // n more rows for the key that the request presents. Errors: 429 `queue_full` while others run,
  // 400 for more than a key may ever have.
  std::variant<Lease, ApiError> take(const HttpRequest& request, std::uint32_t n);

 private:
  const std::uint32_t limit_;
  const std::vector<KeyDigest> keys_;
  std::mutex mutex_;
  std::vector<std::uint32_t> n_rows_;  // [keys]
};

}  // namespace kvasir::server
