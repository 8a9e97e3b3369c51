#include "kv/kv_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/ids.h"
#include "kv/detail/geometry.h"

namespace kvasir::kv {

Result<KvPlan> KvPlan::make(const KvList& list,
                            const KvScheme& scheme,
                            std::uint32_t block_tokens,
                            std::uint32_t split_tokens,
                            std::uint32_t max_chunk) {
  KVASIR_TRY_DO(check_block_tokens(block_tokens));
  KVASIR_TRY(KvGeometry geometry, KvGeometry::make(list, scheme, block_tokens));
  return KvPlan(std::make_shared<const KvGeometry>(std::move(geometry)), split_tokens, max_chunk);
}

KvPlan::KvPlan(std::shared_ptr<const KvGeometry> geometry, std::uint32_t split, std::uint32_t chunk)
    : geometry_(std::move(geometry)), split_tokens_(split), max_chunk_(chunk) {}

std::uint64_t KvPlan::budget_for(std::uint64_t n_tokens) const {
  return geometry_->budget_for(n_tokens, max_chunk_, split_tokens_, max_chunk_);
}

std::uint64_t KvPlan::bytes_per_token() const noexcept { return geometry_->bytes_per_token(); }

std::uint64_t KvPlan::books_bytes(std::uint64_t budget_bytes) const noexcept {
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (const PoolGeometry& pool : geometry_->pools)
    smallest = std::min<std::uint64_t>(smallest, pool.block_bytes());
  return budget_bytes / std::max<std::uint64_t>(smallest, 1) *
         (sizeof(std::uint32_t) + sizeof(BlockId));
}

}  // namespace kvasir::kv
