// Segments of a row's one new token, shared by the blocks of a cluster: what a segment came to is
// sent, in slices of columns, to the blocks, each of which joins all segments of its slice.
#pragma once

#include "backend/cuda/device/few_block.cuh"
#include "backend/cuda/device/near_blocks.cuh"

namespace kvasir::backend::cuda {

// In shared memory: a barrier, then of each segment [columns][heads] outputs and [heads] maxima
// and sums. Heads are an even number, one more than there are if need be.
template <class S>
class ClusterJoin {
 public:
  // Of rows of up to max_segments segments, n_blocks or more, by n_blocks.
  __host__ __device__ static std::uint32_t size_bytes(const AttentionParams& p,
                                                      std::uint32_t n_blocks) {
    const std::uint32_t heads = even_heads(p), of_long = p.max_segments * (S::kDim / n_blocks + 2),
                        of_short = 2 * S::kDim + 4 * n_blocks;  // of fewer segments than blocks
    return kBarrierBytes + heads * 4 * (of_long > of_short ? of_long : of_short);
  }

  // Of n_blocks blocks those that have segments take part, a power of two of them in the joining.
  __device__ ClusterJoin(const FewBlock<S>& block,
                         std::uint32_t from,
                         std::uint32_t n_blocks,
                         std::uint32_t n_segments)
      : block_(block),
        barrier_(shared_address(block.shared) + from),
        n_segments_(n_segments),
        heads_(even_heads(block.p)) {
    join_shift_ = 31 - __clz(static_cast<int>(min(n_blocks, n_segments)));
    column_shift_ = 31 - __clz(S::kDim) - join_shift_;
  }

  // Before tell_cluster().
  __device__ void expect() const {
    if (joins() && threadIdx.x == 0) expect_sent(barrier_, n_segments_ * bytes_a_segment());
  }

  // After await_cluster(). What the block's segment, number `segment` of the row, came to: outputs,
  // then maxima and sums.
  __device__ void send_outputs(std::uint32_t segment) const {
    static_assert(S::kColumns == 1 && S::kGroups == 1);
    const std::uint32_t to = place_of(segment), pair = 2 * (block_.lane % 4);
    if (pair >= heads_) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t d = block_.column_of(0, half), rank = d >> column_shift_,
                          column = d - (rank << column_shift_);
      if (d < S::kDim)
        send_two(rank, to + (column * heads_ + pair) * 4, barrier_,
                 {block_.out[0][0][2 * half], block_.out[0][0][2 * half + 1]});
    }
  }
  __device__ void send_sums(std::uint32_t segment) const {
    if (block_.warp != FewBlock<S>::kSumWarp) return;
    const float2 ml{block_.own[0].max, block_.segment_sum(0)};
    const std::uint32_t pair = block_.lane / 4, to = place_of(segment) + ml_place() + pair * 8;
    if (pair >= heads_) return;
    for (std::uint32_t rank = block_.lane % 4; rank >> join_shift_ == 0; rank += 4)
      send_two(rank, to, barrier_, ml);
  }

  // Segments in ascending order, to outputs.
  __device__ void join() const {
    if (!joins()) return;
    await_phase(barrier_, 0);
    const AttentionParams& p = block_.p;
    const std::uint32_t heads = p.n_heads / p.n_kv_heads, n_columns = 1u << column_shift_;
    const std::byte* const parts = block_.shared + (place_of(0) - shared_address(block_.shared));
    for (std::uint32_t i = threadIdx.x; i < heads * n_columns; i += S::kThreads) {
      const std::uint32_t d = i % n_columns, pair = i >> column_shift_;
      const std::byte* part = parts + (d * heads_ + pair) * 4;
      const std::byte* ml = parts + ml_place() + pair * 8;
      Softmax kept{minus_infinity(), 0.0f};
      float out = 0.0f;
#pragma unroll 8
      for (std::uint32_t s = 0; s < n_segments_; ++s) {
        const float2 found = *reinterpret_cast<const float2*>(ml + s * bytes_a_segment());
        const float added = *reinterpret_cast<const float*>(part + s * bytes_a_segment());
        const Merge f = merge(kept, {found.x, found.y});
        out = fmaf(out, f.keep, added * f.gain);
      }
      finish(pair, (blockIdx.x << column_shift_) + d, kept, out);
    }
  }

 private:
  static constexpr std::uint32_t kBarrierBytes = 16;

  __host__ __device__ static std::uint32_t even_heads(const AttentionParams& p) {
    return (p.n_heads / p.n_kv_heads + 1) / 2 * 2;
  }
  __device__ bool joins() const { return blockIdx.x >> join_shift_ == 0; }
  __device__ std::uint32_t ml_place() const { return heads_ * 4 << column_shift_; }
  __device__ std::uint32_t bytes_a_segment() const { return ml_place() + heads_ * 8; }
  __device__ std::uint32_t place_of(std::uint32_t segment) const {
    return barrier_ + kBarrierBytes + segment * bytes_a_segment();
  }

  __device__ void finish(std::uint32_t pair, std::uint32_t d, Softmax kept, float out) const {
    const AttentionParams& p = block_.p;
    const std::uint32_t head = block_.source.head * (p.n_heads / p.n_kv_heads) + pair,
                        token = block_.row.first_token, column = head * S::kDim + d;
    const float keep = p.sinks ? add_sink(kept, p.sinks[head]) : 1.0f;
    out = out * keep / kept.sum;
    p.out.row(token)[column] = out;
    if (p.copy.data)
      static_cast<std::uint16_t*>(p.copy.data)[p.copy.place(token, column)] =
          static_cast<std::uint16_t>(pack_bf16(out, 0.0f));
  }

  const FewBlock<S>& block_;
  std::uint32_t barrier_, n_segments_, heads_, join_shift_, column_shift_;
};

}  // namespace kvasir::backend::cuda
