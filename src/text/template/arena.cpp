#include "text/template/arena.h"

#include <algorithm>
#include <cstdint>

namespace kvasir::text::tmpl {

void* Arena::do_allocate(std::size_t bytes, std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(at_);
  std::size_t padding = (alignment - address % alignment) % alignment;
  if (at_ == nullptr || padding + bytes > static_cast<std::size_t>(end_ - at_)) {
    // A large object gets a chunk of its own, so that the open chunk's rest is not wasted.
    const bool is_large = bytes > next_chunk_ / 4;
    const std::size_t size = is_large ? bytes + alignment : next_chunk_;
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    std::byte* chunk = chunks_.back().get();
    const auto start = reinterpret_cast<std::uintptr_t>(chunk);
    padding = (alignment - start % alignment) % alignment;
    used_ += bytes + padding;
    if (is_large) return chunk + padding;
    at_ = chunk + padding + bytes;
    end_ = chunk + size;
    next_chunk_ = std::min<std::size_t>(next_chunk_ * 2, std::size_t{1} << 20);
    return chunk + padding;
  }
  std::byte* result = at_ + padding;
  at_ = result + bytes;
  used_ += padding + bytes;
  return result;
}

}  // namespace kvasir::text::tmpl
