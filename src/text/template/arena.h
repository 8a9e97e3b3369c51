// Memory of one rendering: a bump allocator, everything is given back at once. Values are therefore
// plain copies and reference cycles that a template builds are harmless. Counts bytes against a
// limit (TXT-30).
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvasir::text::tmpl {

class Arena final : public std::pmr::memory_resource {
 public:
  explicit Arena(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // False once more than max_bytes was handed out. Small requests are still served so that callers
  // need no null check; whoever is about to take much asks can_take first.
  bool within_limit() const noexcept { return used_ <= max_bytes_; }
  bool can_take(std::size_t bytes) const noexcept {
    return used_ <= max_bytes_ && bytes <= max_bytes_ - used_;
  }

  // The object lives as long as the arena; its destructor does not run.
  template <class T, class... Args>
  T* make(Args&&... args) {
    return ::new (allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
  }
  char* bytes(std::size_t n) { return static_cast<char*>(allocate(n, 1)); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::size_t max_bytes_;
  std::size_t used_ = 0;
  std::size_t next_chunk_ = 4096;
  std::byte* at_ = nullptr;
  std::byte* end_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
};

}  // namespace kvasir::text::tmpl
