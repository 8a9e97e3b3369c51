// The one new token of a row, of a KV head: its queries, key and value, made by the block that
// attends to it. They go to shared memory at once, the key and the value also to their places.
#pragma once

#include "backend/cuda/device/few_block.cuh"
#include "backend/cuda/device/kept_head.cuh"
#include "backend/cuda/device/near_blocks.cuh"

namespace kvasir::backend::cuda {

template <class S>
class FreshHeads {
 public:
  static constexpr std::uint32_t kStride = 2 * S::kDim + 16;
  // In shared memory: the key, the value, queries.
  static constexpr std::uint32_t kBytes = 4 * S::kDim + S::kPairs * kStride;

  // kv_head's queries by the block's first warps, then, where has_token, the key and the value;
  // kept at `from`.
  __device__ FreshHeads(const QueryKeyParams& p,
                        const FewBlock<S>& block,
                        std::uint32_t heads,
                        bool has_token,
                        std::uint32_t from)
      : p_(p),
        block_(block),
        heads_(heads),
        n_items_(has_token ? heads + 2 : heads),
        from_(from),
        own_{made(0), made(1)} {}

  __device__ void load_tables() {
    for_each([&](KeptHead& head, std::uint32_t) { head.load_tables(block_.row); });
  }
  // After the kernels ahead have ended. The key and the value by one of the row's blocks.
  __device__ void make() {
    for_each([](KeptHead& head, std::uint32_t) { head.load_elements(); });
    for_each([&](KeptHead& head, std::uint32_t item) {
      head.prepare();
      if (!head.is_there) return;
      if (head.kind == HeadKind::query) {
        *reinterpret_cast<uint2*>(query(item) + 2 * head.at) = {pack_bf16(head.v[0], head.v[1]),
                                                                pack_bf16(head.v[2], head.v[3])};
        return;
      }
      head.store();
      *reinterpret_cast<uint2*>(kept(head.kind) + 2 * head.at) = head.as_bf16();
    });
    meet_threads<S::kThreads>();
  }
  // The key or the value to row r of the unit, if that is the warp's.
  __device__ void put(HeadKind kind, std::uint32_t r) const {
    if (r / S::kRows != block_.warp || block_.lane >= S::kDim / 8) return;
    const FewSideLayout& side = kind == HeadKind::key ? block_.at.k : block_.at.v;
    const std::uint32_t at = block_.lane * 16;
    *reinterpret_cast<uint4*>(block_.shared + side.codes + r * side.stride + at) =
        *reinterpret_cast<const uint4*>(kept(kind) + at);
  }
  // Operand B of the scores.
  __device__ void load_queries(FewBlock<S>& block) const {
    const std::uint32_t g = block.lane / 4, c = block.lane % 4;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      const auto* const from = reinterpret_cast<const std::uint32_t*>(query(g)) + 8 * step + c;
      block.query[step][0][0] = g < heads_ ? from[0] : 0;
      block.query[step][0][1] = g < heads_ ? from[4] : 0;
    }
  }

 private:
  static_assert(S::kIsLone && S::kGroups == 1);
  static constexpr int kMost = 2;  // heads of a warp: eight queries, the key and the value

  __device__ KeptHead made(std::uint32_t round) const {
    const std::uint32_t item = block_.warp + S::kWarps * round, kv_head = block_.source.head;
    const std::uint32_t token = block_.row.first_token;
    if (item < heads_) return {p_, HeadKind::query, token, kv_head * heads_ + item};
    return {p_, item == heads_ ? HeadKind::key : HeadKind::value, token, kv_head};
  }
  template <class F>  // (head, item)
  __device__ void for_each(F&& f) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const std::uint32_t item = block_.warp + S::kWarps * i;
      if (item < n_items_) f(own_[i], item);
    }
  }
  __device__ std::byte* query(std::uint32_t pair) const {
    return block_.shared + from_ + 4 * S::kDim + pair * kStride;
  }
  __device__ std::byte* kept(HeadKind kind) const {
    return block_.shared + from_ + (kind == HeadKind::key ? 0 : 2 * S::kDim);
  }

  const QueryKeyParams& p_;
  const FewBlock<S>& block_;
  std::uint32_t heads_, n_items_, from_;
  KeptHead own_[kMost];
};

}  // namespace kvasir::backend::cuda
