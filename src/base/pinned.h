// PinnedScope: memory that backends take from the system while one lives stays in RAM until it is
// freed (FIT-34). Scopes nest: the outermost turns pinning on and off again. Where the system
// refuses, memory is as good unpinned: one warning a scope. For loading weights; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir {

class PinnedScope {
 public:
  PinnedScope() noexcept;
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;
};

bool is_pinning() noexcept;
// Of whole pages, when a scope lives; else nothing.
void pin_memory(const void* data, std::size_t size_bytes) noexcept;
// How many bytes this process may pin (RLIMIT_MEMLOCK); the largest number: any.
std::uint64_t pin_limit_bytes() noexcept;

}  // namespace kvasir
