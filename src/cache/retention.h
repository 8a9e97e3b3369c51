// RetentionPolicy: which cached entry goes first (CACHE-20…23). Sees numbers only; time is a
// logical counter. One object a cache, engine thread only. A policy is a class here and its name in
// make_retention_policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"

namespace kvasir::cache {

struct RetentionEntry {
  std::size_t bytes = 0;        // of the entry alone, shared blocks included
  std::uint64_t cost = 0;       // prefill tokens it saves (CACHE-23)
  std::uint64_t last_used = 0;  // logical time
  std::uint64_t uses = 0;       // 1 at put, + 1 a hit
  double priority = 0;          // the policy's own
};

class RetentionPolicy {
 public:
  virtual ~RetentionPolicy() = default;
  virtual void accessed(RetentionEntry& entry) noexcept = 0;  // after put and after each hit
  // Index of the entry to drop; entries is not empty.
  virtual std::size_t victim(std::span<const RetentionEntry* const> entries) const noexcept = 0;
  virtual void evicted(const RetentionEntry& entry) noexcept = 0;
};

// `--cache-policy`: lru or cost-size. Error: unknown name.
Result<std::unique_ptr<RetentionPolicy>> make_retention_policy(std::string_view name);

}  // namespace kvasir::cache
