// The one new token of a row, of a KV head: its queries, key and value, made by the block that
// attends to it. They go to shared memory at once, the key and the value also to their places.
#pragma once

#include "backend/cuda/device/few_block.cuh"
#include "backend/cuda/device/kept_head.cuh"

namespace kvasir::backend::cuda {

template <class S>
class FreshHeads {
 public:
  // kv_head's queries by the block's first warps, then the key, then the value.
  __device__ FreshHeads(const QueryKeyParams& p, const FewBlock<S>& block, std::uint32_t heads)
      : p_(p), block_(block), heads_(heads), own_{made(0), made(1)} {}

  __device__ void load_tables() {
    for_each([](KeptHead& head, std::uint32_t) { head.load_tables(); });
  }
  // After the kernels ahead have ended. first: of the block's keys, the token's may be among them.
  __device__ void make(std::uint32_t first) {
    for_each([](KeptHead& head, std::uint32_t) { head.load_elements(); });
    const std::uint32_t r = block_.row.length - first;
    for_each([&](KeptHead& head, std::uint32_t item) {
      head.prepare();
      if (!head.is_there) return;
      if (head.kind == HeadKind::query) {
        *reinterpret_cast<uint2*>(query(item) + 2 * head.at) = {pack_bf16(head.v[0], head.v[1]),
                                                                pack_bf16(head.v[2], head.v[3])};
        return;
      }
      if (r >= S::kUnit) return;
      head.store();
      const FewSideLayout& side = head.kind == HeadKind::key ? block_.at.k : block_.at.v;
      *reinterpret_cast<uint2*>(block_.shared + side.codes + r * side.stride + 2 * head.at) =
          head.as_bf16();
    });
    __syncthreads();
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
  static constexpr std::uint32_t kStride = 2 * S::kDim + 16;
  static_assert(S::kPairs * kStride <= S::kUnit / 16 * 256, "in the place of weights");

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
      if (item < heads_ + 2) f(own_[i], item);
    }
  }
  __device__ std::byte* query(std::uint32_t pair) const {
    return block_.shared + block_.at.weights + pair * kStride;
  }

  const QueryKeyParams& p_;
  const FewBlock<S>& block_;
  std::uint32_t heads_;
  KeptHead own_[kMost];
};

}  // namespace kvasir::backend::cuda
