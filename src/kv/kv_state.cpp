#include "kv/kv_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"

namespace kvasir::kv {
namespace {

const StateBody& held(const std::unique_ptr<StateBody>& body) noexcept {
  KVASIR_CHECK(body != nullptr) << "an empty KvState was asked something";
  return *body;
}

}  // namespace

KvState::KvState() noexcept = default;
KvState::KvState(std::unique_ptr<StateBody> body) noexcept : body_(std::move(body)) {
  body_->core->link(*body_);
}
KvState::KvState(KvState&& other) noexcept : body_(std::move(other.body_)) {}
KvState& KvState::operator=(KvState&& other) noexcept {
  KvState moved(std::move(other));
  std::swap(body_, moved.body_);
  return *this;
}
KvState::~KvState() {
  if (!body_) return;
  body_->core->unlink(*body_);
  body_->core->drop_all(*body_);
}

std::uint32_t KvState::length() const noexcept { return held(body_).length; }

std::size_t KvState::bytes() const noexcept {
  const StateBody& body = held(body_);
  std::size_t total = 0;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const std::vector<BlockId>& blocks = body.tables[g].blocks;
    const auto n = blocks.size() -
                   static_cast<std::size_t>(std::count(blocks.begin(), blocks.end(), kNoBlock));
    const KvGeometry& geometry = body.core->geometry;
    const std::uint32_t pool = geometry.groups[g].pool(body.tables[g].is_encoded);
    total += n * geometry.pools[pool].block_bytes();
  }
  return total;
}

bool KvState::resumable_at(std::uint32_t p) const noexcept {
  return held(body_).core->resumable_at(*body_, p);
}

std::uint32_t KvState::resumable_floor(std::uint32_t p) const noexcept {
  const StateBody& body = held(body_);
  const std::uint32_t top = std::min(p, body.length);
  return body.core->resumable_at(body, top) ? top : 0;
}

std::uint32_t KvState::min_reusable() const noexcept { return held(body_).min_reusable; }

bool KvState::serves_all_of(const KvState& shorter) const noexcept {
  const StateBody& mine = held(body_);
  const StateBody& other = held(shorter.body_);
  return mine.length >= other.length && min_reusable() <= shorter.min_reusable() &&
         mine.core->first_resumable(mine) <= mine.core->first_resumable(other);
}

KvState KvState::clone() const { return clone_prefix(length()); }

KvState KvState::clone_prefix(std::uint32_t p) const {
  return KvState(held(body_).core->clone_prefix(*body_, p));
}

Status KvState::trim_to(std::uint32_t p) { return held(body_).core->trim_to(*body_, p); }

void KvState::append_blocks(std::vector<KvBlockRef>& out) const {
  const StateBody& body = held(body_);
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    for (const BlockId block : body.tables[g].blocks)
      if (block != kNoBlock)
        out.push_back({body.core->geometry.groups[g].pool(body.tables[g].is_encoded), block});
  }
}

}  // namespace kvasir::kv
