// Strong ids: integers that do not mix. Free at run time. Token ids are plain u32 (they cross every
// API as numbers).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace kvasir {

template <class Tag, class Rep = std::uint32_t>
struct Id {
  Rep value{};
  friend constexpr auto operator<=>(Id, Id) = default;
};

using BlockId = Id<struct BlockTag>;  // physical KV block in a pool
using RequestId = Id<struct RequestTag, std::uint64_t>;
using KvRowId = Id<struct KvRowTag>;  // a row's KV state in the KvStore
using TokenId = std::uint32_t;

}  // namespace kvasir

template <class Tag, class Rep>
struct std::hash<kvasir::Id<Tag, Rep>> {
  std::size_t operator()(kvasir::Id<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
