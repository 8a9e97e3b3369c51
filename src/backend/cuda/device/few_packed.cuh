// Decode attention over affine codes, the same width and groups of 64 on both sides: what FewBlock
// does with any codec, of few instructions (packed_pairs.cuh). Codes that cannot be taken so, told
// for each unit, take FewBlock's way.
#pragma once

#include "backend/cuda/device/few_block.cuh"

namespace kvasir::backend::cuda {

// A warp's rows of a unit, which lie one after another in a block of at least as many.
template <class S>
struct PackedRuns {
  static constexpr std::uint32_t kCodeBytes = S::kDim * S::kBits / 8, kGroups = S::kDim / 64,
                                 kScaleBytes = 2 * kGroups, kStride = few_stride(kCodeBytes);
  std::uint32_t first, block;
  bool is_there;

  __device__ PackedRuns(const FewSource& s, std::uint32_t first_position, std::uint32_t)
      : first(first_position), block(0) {
    is_there = first < s.end && first + S::kRows > s.begin;
    if (is_there) block = s.blocks[first >> s.p.block_shift];
  }

  template <FewPart>
  __device__ void fetch(const FewSource& s,
                        const KvSide& side,
                        const FewSideLayout& at,
                        std::uint32_t shared,
                        std::uint32_t warp,
                        std::uint32_t lane) const {
    if (!is_there) return;
    constexpr std::uint32_t kParts = S::kRows * kScaleBytes / 16;
    const std::uint32_t rows = warp * S::kRows,
                        row = (block * s.p.n_kv_heads + s.head) * s.p.block_tokens +
                              (first & (s.p.block_tokens - 1));
    copy_whole_rows<S, kCodeBytes>(side.codes, row, shared + at.codes, warp, lane);
    if (lane >= 2 * kParts) return;
    const bool is_offset = lane >= kParts;
    const std::uint32_t i = lane % kParts * 16;
    copy_16_async(shared + (is_offset ? at.offsets : at.scales) + rows * kScaleBytes + i,
                  (is_offset ? side.offsets : side.scales) + std::size_t{row} * kScaleBytes + i);
  }
};

template <class S>
struct PackedBlock : FewBlock<S> {
  using Base = FewBlock<S>;
  using Runs = PackedRuns<S>;
  using typename Base::Scores;
  static constexpr int kBits = S::kBits;
  static constexpr std::uint32_t kStride = Runs::kStride;
  bool queries_fit;  // times 2^8

  __device__ void load_queries() {
    Base::load_queries();
    bool fits = true;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      std::uint32_t(&q)[2] = this->query[step][0];
      for (int i = 0; i < 2; ++i)
        fits = fits && (q[i] >> 7 & 0xffu) < 247 && (q[i] >> 23 & 0xffu) < 247;
      if constexpr (kBits == 4) {  // code 0 beside 2, 1 beside 3
        const std::uint32_t near = q[0], far = q[1];
        q[0] = __byte_perm(near, far, 0x5410), q[1] = __byte_perm(near, far, 0x7632);
      }
    }
    queries_fit = __all_sync(~0u, fits);
    this->query_down = queries_fit ? kPackedDown : kPackedOne;
    if (!queries_fit) return;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      std::uint32_t(&q)[2] = this->query[step][0];
      q[0] = times(q[0], kPackedUp), q[1] = times(q[1], kPackedUp);
    }
  }

  // Scales and offsets of the lane's row of the warp's, a half word a group; zeros of a row that is
  // not there.
  struct Row {
    std::uint32_t scales, offsets;
  };
  __device__ Row stored(const FewSideLayout& side, std::uint32_t first) const {
    const std::uint32_t key = this->warp * S::kRows + this->lane, position = first + this->lane;
    if (position < this->source.begin || position >= this->source.end) return {0, 0};
    using Word = std::conditional_t<Runs::kGroups == 1, std::uint16_t, std::uint32_t>;
    return {reinterpret_cast<const Word*>(this->shared + side.scales)[key],
            reinterpret_cast<const Word*>(this->shared + side.offsets)[key]};
  }
  // Tables of the warp's rows, scales for pairs; whether these can be taken so.
  __device__ bool make_key_table(std::uint32_t first) const {  // [key]
    const Row row = stored(this->at.k, first);
    reinterpret_cast<uint2*>(this->shared +
                             this->at.k.table)[this->warp * S::kRows + this->lane] = {
        times(row.scales, kPackedScale), times(row.offsets, kPackedDown)};
    return __all_sync(~0u, pair_packs_exactly(row.scales, row.offsets)) && queries_fit;
  }
  // [group][step][lane % 4] of scales and offsets of keys 2c, 2c + 1, then of those 8 further.
  __device__ bool make_value_table(std::uint32_t first) const {
    const Row row = stored(this->at.v, first);
    const std::uint32_t scales = times(row.scales, kPackedScale),
                        offsets = times(row.offsets, kPackedDown);
    const std::uint32_t key = this->warp * S::kRows + this->lane, in_step = key % 16;
    auto* const to = reinterpret_cast<std::uint16_t*>(this->shared + this->at.v.table) +
                     (key / 16 * 4 + in_step % 8 / 2) * 8 + in_step / 8 * 4 + key % 2;
#pragma unroll
    for (std::uint32_t group = 0; group < Runs::kGroups; ++group) {
      to[group * S::kUnit * 4 / 2] = static_cast<std::uint16_t>(scales >> 16 * group);
      to[group * S::kUnit * 4 / 2 + 2] = static_cast<std::uint16_t>(offsets >> 16 * group);
    }
    return __all_sync(~0u, pair_packs_exactly(row.scales, row.offsets));
  }

  // A half word of a pair, twice.
  __device__ static std::uint32_t half_of(std::uint32_t pair, std::uint32_t half) {
    return __byte_perm(pair, 0, half == 0 ? 0x1010u : 0x3232u);
  }
  // The thread's elements of a step of two keys: operand A.
  struct StepScale {
    std::uint32_t scale, upper, offset;  // upper: for codes in bits 4 to 7
  };
  __device__ static StepScale step_scale(uint2 row, std::uint32_t group) {
    const std::uint32_t scale = half_of(row.x, group);
    return {scale, kBits == 4 ? times(scale, kPackedFour) : 0, half_of(row.y, group)};
  }
  __device__ static void key_pairs(std::uint32_t w,
                                   const StepScale& s,
                                   std::uint32_t& first,
                                   std::uint32_t& second) {
    const std::uint32_t low = __byte_perm(w, 0, 0x4140);
    if constexpr (kBits == 8) {
      first = fused_pair(low, s.scale, s.offset);
      second = fused_pair(__byte_perm(w, 0, 0x4342), s.scale, s.offset);
    } else {
      first = fused_pair(low & 0x000f000fu, s.scale, s.offset);
      second = fused_pair(low & 0x00f000f0u, s.upper, s.offset);
    }
  }
  __device__ void score_packed(Scores& x) const {
    const std::uint32_t lane = this->lane, rows = this->warp * S::kRows;
    const auto* const table = reinterpret_cast<const uint2*>(this->shared + this->at.k.table);
    const std::byte* const codes = this->shared + this->at.k.codes;
    const std::uint32_t matrices =
        shared_address(codes) + (rows + lane / 8 % 2 * 8 + lane % 8) * kStride + lane / 16 * 16;
    const std::byte* const near = codes + (rows + lane / 4) * kStride + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < S::kKeySteps; ++k) {
      const uint2 near_row = table[rows + 16 * k + lane / 4],
                  far_row = table[rows + 16 * k + lane / 4 + 8];
#pragma unroll
      for (int step = 0; step < S::kSteps; step += 2) {
        const StepScale near_scale = step_scale(near_row, step / 4),
                        far_scale = step_scale(far_row, step / 4);
        std::uint32_t w[4];  // of both keys, then of the next step
        if constexpr (kBits == 8) {
          load_matrices(w, matrices + 16 * k * kStride + 16 * step);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            w[i] = *reinterpret_cast<const std::uint16_t*>(near + (16 * k + i % 2 * 8) * kStride +
                                                           8 * (step + i / 2));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          std::uint32_t a[4];
          key_pairs(w[2 * i], near_scale, a[0], a[2]);
          key_pairs(w[2 * i + 1], far_scale, a[1], a[3]);
          multiply_add(x[k][0], a, this->query[step + i][0][0], this->query[step + i][0][1]);
        }
      }
    }
  }
  __device__ void find_scores(std::uint32_t first, bool is_exact_table, Scores& x) const {
    Base::clear(x);
    is_exact_table ? score_packed(x) : this->template score_codes<KvKind::affine, kBits, false>(x);
    this->end_scores(first, x);
  }

  // A matrix turned over has, of two keys, two neighbours of 8 bits or four of 4 each: words[0] of
  // keys 2c and 2c + 1, words[1] of those 8 further. Two columns: rows g and g + 8 of operand A.
  __device__ static void value_pairs(const std::uint32_t* words,
                                     int two,
                                     const uint4& s,
                                     std::uint32_t (&a)[4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t w = words[h], scale = h == 0 ? s.x : s.z, offset = h == 0 ? s.y : s.w;
      if constexpr (kBits == 8) {
        a[2 * h] = fused_pair(__byte_perm(w, 0, 0x4240), scale, offset);
        a[2 * h + 1] = fused_pair(__byte_perm(w, 0, 0x4341), scale, offset);
      } else {
        const std::uint32_t own = two == 0 ? w : w >> 8;
        a[2 * h] = fused_pair(own & 0x000f000fu, scale, offset);
        a[2 * h + 1] = fused_pair(own & 0x00f000f0u, times(scale, kPackedFour), offset);
      }
    }
  }
  __device__ void load_packed(std::uint32_t step, std::uint32_t (&a)[S::kColumns][4]) const {
    const std::uint32_t lane = this->lane, column = this->warp * S::kDims;
    const uint4 scales = reinterpret_cast<const uint4*>(
        this->shared + this->at.v.table)[(column / 64 * (S::kUnit / 16) + step) * 4 + lane % 4];
    const std::uint32_t from = shared_address(this->shared) + this->at.v.codes +
                               (16 * step + lane / 8 % 2 * 8 + lane % 8) * kStride +
                               column * kBits / 8;
    if constexpr (kBits == 8 && S::kColumns == 2) {
      std::uint32_t w[4];
      load_transposed(w, from + lane / 16 * 16);
      value_pairs(w, 0, scales, a[0]);
      value_pairs(w + 2, 0, scales, a[1]);
    } else {
      static_assert((kBits == 8 && S::kColumns == 1) || (kBits == 4 && S::kColumns == 2));
      std::uint32_t w[2];
      load_two_transposed(w, from);
#pragma unroll
      for (int k = 0; k < S::kColumns; ++k) value_pairs(w, k, scales, a[k]);
    }
  }
  __device__ void add_values(std::uint32_t first, const float (&keep)[S::kTiles][S::kGroups][2]) {
    const uint4 exact = *reinterpret_cast<const uint4*>(this->shared + this->at.exact);
    if ((exact.x & exact.y & exact.z & exact.w) != 0) {
      Base::add_values(first, keep,
                       [&](std::uint32_t step, auto& a) { this->load_packed(step, a); });
    } else {
      Base::template add_values<true>(first, keep, [&](std::uint32_t step, auto& a) {
        this->template load_value_codes<KvKind::affine, kBits, false>(first, step, nullptr, a);
      });
    }
  }
};

}  // namespace kvasir::backend::cuda
