#include "backend/cuda/team/team_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir::backend::cuda {

Buffer TeamMemory::add(Region region) {
  std::byte* const base = region.base;
  const std::size_t size_bytes = region.size_bytes;
  regions_.emplace(base, std::move(region));
  return Buffer(base, size_bytes, &forget, this);
}

Buffer TeamMemory::add_whole(std::size_t size_bytes, std::vector<Buffer> parts) {
  std::byte* const base = parts.front().data();
  return add({base, size_bytes, 0, std::move(parts)});
}

Buffer TeamMemory::add_split(std::size_t n_blocks,
                             std::size_t block_bytes,
                             std::vector<Buffer> parts) {
  const std::size_t size_bytes = std::max<std::size_t>(n_blocks * block_bytes, 1);
  void* const base =
      mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return {};
  return add({static_cast<std::byte*>(base), size_bytes, block_bytes, std::move(parts)});
}

void TeamMemory::forget(void* self, std::byte* base, std::size_t size_bytes) noexcept {
  auto& regions = static_cast<TeamMemory*>(self)->regions_;
  const auto found = regions.find(base);
  if (found->second.is_split()) munmap(base, size_bytes);
  regions.erase(found);
}

const TeamMemory::Region* TeamMemory::find(const void* address) const noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  auto found = regions_.upper_bound(at);
  if (found == regions_.begin()) return nullptr;
  const Region& region = (--found)->second;
  return at < region.base + std::max<std::size_t>(region.size_bytes, 1) ? &region : nullptr;
}

std::byte* TeamMemory::at(const std::byte* address, std::size_t member) const noexcept {
  const Region* const region = find(address);
  if (region == nullptr) return const_cast<std::byte*>(address);
  KVASIR_DCHECK(!region->is_split() || address == region->base);
  return region->parts[member].data() + (address - region->base);
}

TeamMemory::Piece TeamMemory::piece(const Region& region,
                                    const std::byte* address,
                                    std::size_t size_bytes) noexcept {
  const std::size_t part_bytes = region.block_bytes / region.parts.size();
  const auto offset = static_cast<std::size_t>(address - region.base);
  const std::size_t block = offset / region.block_bytes, in_block = offset % region.block_bytes;
  const std::size_t member = in_block / part_bytes, in_part = in_block % part_bytes;
  return {member, region.parts[member].data() + block * part_bytes + in_part,
          std::min(size_bytes, part_bytes - in_part)};
}

}  // namespace kvasir::backend::cuda
