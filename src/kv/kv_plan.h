// KvPlan: the arithmetic of a store before there is one (KV-60): how large a budget a row needs
// when the store divides it among its pools. The same geometry that the store itself is made from,
// so that what the memory model promises (fit/) is what admission finds. A plain value: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "contract/kv_list.h"
#include "kv/kv_scheme.h"

namespace kvasir::kv {

struct KvGeometry;  // private

class KvPlan {
 public:
  // As KvStoreOptions; `max_chunk` is the most tokens a row feeds in one step, by which budgets are
  // divided as well. Errors: those of KvStore::make but for memory.
  static Result<KvPlan> make(const KvList& list,
                             const KvScheme& scheme,
                             std::uint32_t block_tokens,
                             std::uint32_t split_tokens,
                             std::uint32_t max_chunk);

  // The smallest budget whose store holds a lone row of n tokens. Never falls as n grows.
  std::uint64_t budget_for(std::uint64_t n_tokens) const;
  std::uint64_t bytes_per_token() const noexcept;  // in the form that long rows have
  // The books of a store of that budget: a reference count and a place in the free list a block.
  std::uint64_t books_bytes(std::uint64_t budget_bytes) const noexcept;

 private:
  KvPlan(std::shared_ptr<const KvGeometry> geometry, std::uint32_t split, std::uint32_t chunk);

  std::shared_ptr<const KvGeometry> geometry_;  // shared with copies of the plan; constant
  std::uint32_t split_tokens_, max_chunk_;
};

}  // namespace kvasir::kv
