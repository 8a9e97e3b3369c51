#include "backend/cpu/detail/weight_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/cpu/detail/memory.h"
#include "base/pinned.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Address space; pages take memory when they are touched. What one leaves unused is part of a huge
// page.
constexpr std::size_t kRegion = std::size_t{256} << 20;
constexpr std::size_t kLeast = std::size_t{128} << 10;  // smaller weights are not streams
constexpr std::size_t kMost = std::size_t{16} << 20;    // larger ones have pages of their own
constexpr std::size_t kAlignment = 4096;                // pin_memory's unit

}  // namespace

struct WeightMemory::Region {
  Region(void* at, std::size_t size_bytes, std::byte* begin, std::byte* behind)
      : mapped(at), mapped_bytes(size_bytes), next(begin), end(behind) {}

  void* mapped;
  std::size_t mapped_bytes;
  std::byte* next;
  std::byte* end;
  std::atomic<std::size_t> n_users{1};
};

WeightMemory::~WeightMemory() {
  if (region_) give_back(region_, nullptr, 0);
}

void WeightMemory::give_back(void* region, std::byte*, std::size_t) noexcept {
  auto* const of = static_cast<Region*>(region);
  if (of->n_users.fetch_sub(1) > 1) return;
  const std::unique_ptr<Region> last(of);
  munmap(last->mapped, last->mapped_bytes);
}

// False where the system refuses so much address space at once.
bool WeightMemory::start_region() {
  void* const mapped = mmap(nullptr, kRegion + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  auto* const begin = static_cast<std::byte*>(mapped);
  auto* const aligned =
      begin + (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  static_cast<void>(madvise(aligned, kRegion, MADV_HUGEPAGE));  // a hint: failure is harmless
  if (region_) give_back(region_, nullptr, 0);
  region_ = std::make_unique<Region>(mapped, kRegion + kHugePage, aligned, aligned + kRegion)
                .release();  // its last user deletes it
  return true;
}

Result<Buffer> WeightMemory::allocate(std::size_t size_bytes) {
  if (size_bytes < kLeast || size_bytes > kMost) return allocate_memory(size_bytes);
  const std::size_t taken = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool fits = region_ && static_cast<std::size_t>(region_->end - region_->next) >= taken;
  if (!fits && !start_region()) return allocate_memory(size_bytes);
  std::byte* const data = region_->next;
  region_->next += taken;
  region_->n_users.fetch_add(1);
  pin_memory(data, size_bytes);
  return Buffer(data, size_bytes, &give_back, region_);
}

}  // namespace kvasir::backend::cpu
