// Decode attention's shared memory, and how a warp brings rows of KV state to it.
#pragma once

#include "backend/cuda/device/attention.cuh"
#include "backend/cuda/device/decoded_pairs.cuh"
#include "backend/cuda/device/tensor_core.cuh"

namespace kvasir::backend::cuda {

// kUnit keys are worked on together by four or eight warps: of the scores a warp has kRows keys, of
// the output kDims columns or none. kGroups · 8 pairs (query, head). Eight warps (kIsLone): one
// token a row, rows of kDim elements, no soft cap. kBits > 0: rows are what few_packed.cuh takes.
template <int kDimOf,
          bool kEncodedOf,
          int kGroupsOf,
          int kUnitOf,
          int kWarpsOf = 4,
          int kBitsOf = 0>
struct FewShape {
  static constexpr int kBits = kBitsOf;
  static constexpr bool kIsPacked = kBits > 0;
  static constexpr int kDim = kDimOf, kGroups = kGroupsOf, kUnit = kUnitOf;
  static constexpr bool kEncoded = kEncodedOf, kIsLone = kWarpsOf == 8;
  static constexpr int kWarps = kWarpsOf, kThreads = 32 * kWarps, kPairs = 8 * kGroups;
  static constexpr int kRows = kUnit / kWarps, kKeySteps = kRows / 16;
  static constexpr int kTiles = kUnit / static_cast<int>(kTile);
  static constexpr int kUnitsASegment = static_cast<int>(kSegment) / kUnit;
  static constexpr int kSteps = kDim / 16;
  static constexpr int kDims = kDim < 16 * kWarps ? 16 : kDim / kWarps, kColumns = kDims / 16;
};

// Bytes from one row to the next in shared memory: an odd number of 16s, so that eight rows lie in
// different banks. Rows of other lengths follow one another.
__host__ __device__ constexpr std::uint32_t few_stride(std::uint32_t row_bytes) {
  return row_bytes % 16 != 0 || row_bytes / 16 % 2 == 1 ? row_bytes : row_bytes + 16;
}

struct FewSideLayout {
  std::uint32_t codes, stride, scales, offsets, table;
};
struct FewLayout {
  FewSideLayout k, v;
  std::uint32_t weights, maxima, sums, exact, pairs, ending, centroids, size;

  template <class S>
  __host__ __device__ static FewLayout of(const AttentionParams& p) {
    FewLayout out{};
    std::uint32_t at = 0;
    const auto take = [&](std::uint32_t n_bytes) {
      const std::uint32_t from = at;
      at += (n_bytes + 15) / 16 * 16;
      return from;
    };
    const auto take_side = [&](const KvSide& side) {
      FewSideLayout s{};
      s.stride = few_stride(side.code_bytes);
      s.codes = take(S::kUnit * s.stride);
      if (!S::kEncoded) return s;
      s.scales = take(S::kUnit * side.scale_bytes);
      s.offsets = take(S::kUnit * side.offset_bytes);
      s.table = take(p.dim / side.group * S::kUnit * 8);
      return s;
    };
    out.k = take_side(p.k);
    out.v = take_side(p.v);
    out.weights = take(S::kUnit / 16 * 32 * 8 * S::kGroups);
    out.maxima = take(S::kPairs * S::kWarps * 4);
    out.sums = take(S::kTiles * S::kGroups * 128);
    out.exact = take(S::kWarps * 4);
    out.pairs = take(S::kPairs * 20);
    out.ending = take(S::kPairs * 8);
    out.centroids = take(S::kEncoded && p.v.kind == KvKind::turbo_values ? 1024 : 0);
    out.size = at;
    return out;
  }
};

// What a block reads: one row's keys of one head, of which [begin, end) are there; those from n_old
// on are of this step.
struct FewSource {
  const AttentionParams& p;
  const std::uint32_t* blocks;
  std::uint32_t head, begin, end, n_old;
};

// The block's units, one list: of every step-th segment the units that have keys.
template <class S>
struct UnitList {
  std::uint32_t first, step, begin, end;  // begin, end: numbers of units

  __device__ UnitList(std::uint32_t first_segment,
                      std::uint32_t last_segment,
                      std::uint32_t step_of,
                      KeyRange keys)
      : first(first_segment), step(step_of) {
    const std::uint32_t n = (last_segment - first) / step, from = first * kSegment,
                        last = (first + n * step) * kSegment;
    begin = keys.begin > from ? (keys.begin - from) / S::kUnit : 0;
    end = n * S::kUnitsASegment + (min(keys.end - last, kSegment) + S::kUnit - 1) / S::kUnit;
  }
  __device__ std::uint32_t segment(std::uint32_t u) const {
    return first + u / S::kUnitsASegment * step;
  }
  __device__ std::uint32_t position(std::uint32_t u) const {
    return segment(u) * kSegment + u % S::kUnitsASegment * S::kUnit;
  }
  __device__ bool ends_segment(std::uint32_t u) const {
    return u + 1 == end || (u + 1) % S::kUnitsASegment == 0;
  }
};

// Which rows are fetched: before the kernels ahead have ended only old ones may be.
enum class FewPart { all, old, fresh };

// A warp's kRows rows of a unit, from position `first` on, lie in runs of a block's rows, or all
// in one. Lane r knows where run r begins; made long before that is needed, it waits for nothing.
template <class S>
struct FewRuns {
  std::uint32_t first, run_rows, block;
  bool is_there;

  __device__ FewRuns(const FewSource& s, std::uint32_t first_position, std::uint32_t lane)
      : first(first_position), run_rows(min(std::uint32_t{S::kRows}, s.p.block_tokens)), block(0) {
    const std::uint32_t position = first + lane * run_rows;
    is_there = lane * run_rows < S::kRows && position < s.end && position + run_rows > s.begin;
    if (is_there) block = s.blocks[position >> s.p.block_shift];
  }
  __device__ std::uint32_t row_of(const FewSource& s, std::uint32_t lane) const {
    const std::uint32_t position = first + lane * run_rows;
    return (block * s.p.n_kv_heads + s.head) * s.p.block_tokens +
           (position & (s.p.block_tokens - 1));
  }
  __device__ std::uint32_t n_runs() const {  // both are powers of two
    return std::uint32_t{S::kRows} >> (31 - __clz(static_cast<int>(run_rows)));
  }

  // Rows as they lie, one after another.
  __device__ void copy_run_on(const FewSource& s,
                              const std::byte* plane,
                              std::uint32_t row_bytes,
                              std::uint32_t to,
                              std::uint32_t lane) const {
    const std::uint32_t row = row_of(s, lane);
    for (std::uint32_t r = 0; r < n_runs(); ++r) {
      const std::uint32_t from_row = __shfl_sync(~0u, row, r);
      if (!__shfl_sync(~0u, is_there, r)) continue;
      const std::byte* const from = plane + std::size_t{from_row} * row_bytes;
      for (std::uint32_t i = 16 * lane; i < run_rows * row_bytes; i += 512)
        copy_16_async(to + r * run_rows * row_bytes + i, from + i);
    }
  }

  // Rows `stride` bytes apart. Exact rows that are not there become zeros, with the old ones.
  template <FewPart kPart>
  __device__ void copy_rows(const FewSource& s,
                            const std::byte* plane,
                            std::uint32_t row_bytes,
                            std::uint32_t stride,
                            std::uint32_t to,
                            std::uint32_t lane) const {
    if (row_bytes % 16 != 0) {
      copy_run_on(s, plane, row_bytes, to, lane);
      return;
    }
    const std::uint32_t n_chunks = row_bytes / 16, row = row_of(s, lane);
    const bool is_whole = n_runs() == 1 && first >= s.begin &&
                          first + S::kRows <= (kPart == FewPart::old ? s.n_old : s.end);
    if (is_whole && (n_chunks & (n_chunks - 1)) == 0 && n_chunks <= 32) {
      const std::byte* from = plane + std::size_t{__shfl_sync(~0u, row, 0)} * row_bytes + 16 * lane;
      std::uint32_t at = to + lane / n_chunks * stride + lane % n_chunks * 16;
      const std::uint32_t step = 32 / n_chunks * stride;
#pragma unroll 4
      for (std::uint32_t i = 0; i < S::kRows * n_chunks / 32; ++i) {
        copy_16_async(at, from);
        at += step, from += 512;
      }
      return;
    }
    const std::uint32_t reciprocal = 65535u / n_chunks + 1;  // exact for what follows
    const int run_shift = 31 - __clz(static_cast<int>(run_rows));
    for (std::uint32_t i = lane; i < S::kRows * n_chunks; i += 32) {
      const std::uint32_t r = i * reciprocal >> 16, c = i - r * n_chunks;
      const std::uint32_t from_row = __shfl_sync(~0u, row, r >> run_shift) + (r & (run_rows - 1));
      const bool present = first + r >= s.begin && first + r < s.end;
      if (S::kEncoded && !present) continue;
      if (kPart == FewPart::old && present && first + r >= s.n_old) continue;
      copy_16_async(to + r * stride + 16 * c,
                    plane + std::size_t{present ? from_row : 0} * row_bytes + 16 * c, present);
    }
  }

  // The step's own rows alone, which are few.
  __device__ void copy_fresh(const FewSource& s,
                             const std::byte* plane,
                             std::uint32_t row_bytes,
                             std::uint32_t stride,
                             std::uint32_t to,
                             std::uint32_t lane) const {
    const int run_shift = 31 - __clz(static_cast<int>(run_rows));
    const std::uint32_t end = min(first + S::kRows, s.end), row = row_of(s, lane);
    for (std::uint32_t position = max(first, s.n_old); position < end; ++position) {
      const std::uint32_t r = position - first;
      const std::uint32_t from_row = __shfl_sync(~0u, row, r >> run_shift) + (r & (run_rows - 1));
      for (std::uint32_t i = 16 * lane; i < row_bytes; i += 512)
        copy_16_async(to + r * stride + i, plane + std::size_t{from_row} * row_bytes + i);
    }
  }

  // A side of the warp's rows, which are number warp · kRows … of the unit.
  template <FewPart kPart>
  __device__ void fetch(const FewSource& s,
                        const KvSide& side,
                        const FewSideLayout& at,
                        std::uint32_t shared,
                        std::uint32_t warp,
                        std::uint32_t lane) const {
    const std::uint32_t rows = warp * S::kRows;
    const std::uint32_t to = shared + at.codes + rows * at.stride;
    if constexpr (kPart == FewPart::fresh) {
      copy_fresh(s, side.codes, side.code_bytes, at.stride, to, lane);
      return;
    }
    copy_rows<kPart>(s, side.codes, side.code_bytes, at.stride, to, lane);
    if constexpr (S::kEncoded) {
      if (n_runs() == 1 && S::kRows * side.scale_bytes <= 256) {  // half a warp for each part
        const bool is_offset = lane >= 16;
        const std::uint32_t n_bytes = is_offset ? side.offset_bytes : side.scale_bytes,
                            i = lane % 16 * 16;
        const std::uint32_t from_row = __shfl_sync(~0u, row_of(s, lane), 0);
        if (__shfl_sync(~0u, is_there, 0) && i < S::kRows * n_bytes)
          copy_16_async(
              shared + (is_offset ? at.offsets : at.scales) + rows * n_bytes + i,
              (is_offset ? side.offsets : side.scales) + std::size_t{from_row} * n_bytes + i);
        return;
      }
      copy_run_on(s, side.scales, side.scale_bytes, shared + at.scales + rows * side.scale_bytes,
                  lane);
      if (side.offset_bytes != 0)
        copy_run_on(s, side.offsets, side.offset_bytes,
                    shared + at.offsets + rows * side.offset_bytes, lane);
    }
  }
};

// The warp's rows of kRowBytes, which lie one after another from row `row` of the plane on, to
// their places in shared memory.
template <class S, std::uint32_t kRowBytes>
__device__ void copy_whole_rows(const std::byte* plane,
                                std::uint32_t row,
                                std::uint32_t codes,
                                std::uint32_t warp,
                                std::uint32_t lane) {
  constexpr std::uint32_t kChunks = kRowBytes / 16, kAtOnce = 32 / kChunks,
                          kStride = few_stride(kRowBytes);
  const std::byte* const from = plane + std::size_t{row} * kRowBytes + 16 * lane;
  const std::uint32_t to =
      codes + (warp * S::kRows + lane / kChunks) * kStride + lane % kChunks * 16;
#pragma unroll
  for (std::uint32_t i = 0; i < S::kRows / kAtOnce; ++i)
    copy_16_async(to + i * kAtOnce * kStride, from + 512 * i);
}

// Scale and offset as they are stored.
__device__ inline GroupScale stored_scale(const KvSide& side,
                                          const FewSideLayout& at,
                                          const std::byte* shared,
                                          std::uint32_t key,
                                          std::uint32_t group) {
  const std::uint32_t i = key * (side.scale_bytes / 2) + group;
  const std::uint32_t scale = reinterpret_cast<const std::uint16_t*>(shared + at.scales)[i];
  std::uint32_t offset = 0;
  if (side.offset_bytes != 0)
    offset = reinterpret_cast<const std::uint16_t*>(shared + at.offsets)[i];
  return side.kind == KvKind::affine ? GroupScale{f32_of_bf16(scale), f32_of_bf16(offset)}
                                     : GroupScale{f32_of_f16(scale), f32_of_f16(offset)};
}

// Scales and offsets of the warp's rows as floats, [group][key of the unit], offsets shifted for
// affine codes of 8 bits. Zeros of rows that are not there, so that whatever codes lie in their
// places count for nothing. Whether every shift was exact.
template <class S>
__device__ bool make_few_table(const FewSource& s,
                               const KvSide& side,
                               const FewSideLayout& at,
                               std::byte* shared,
                               std::uint32_t first,
                               std::uint32_t warp,
                               std::uint32_t lane) {
  auto* const table = reinterpret_cast<float2*>(shared + at.table);
  const std::uint32_t n_groups = side.scale_bytes / 2;
  const bool shifts = side.kind == KvKind::affine && side.bits == 8;
  bool is_exact = true;
#pragma unroll
  for (std::uint32_t r = lane; r < S::kRows; r += 32) {
    const bool present = first + r >= s.begin && first + r < s.end;
    const std::uint32_t key = warp * S::kRows + r;
    const auto put = [&](std::uint32_t group, GroupScale g) {
      if (shifts) {
        const float shifted = shifted_offset(g.scale, g.offset);
        is_exact = is_exact && is_exact_shift(g.scale, g.offset, shifted);
        g.offset = shifted;
      }
      table[group * S::kUnit + key] = {g.scale, g.offset};
    };
    if (side.kind == KvKind::affine && n_groups % 2 == 0) {  // two bf16 at once
      const auto* const scales = reinterpret_cast<const std::uint32_t*>(shared + at.scales);
      const auto* const offsets = reinterpret_cast<const std::uint32_t*>(shared + at.offsets);
#pragma unroll 1
      for (std::uint32_t two = 0; two < n_groups / 2; ++two) {
        const std::uint32_t i = key * (n_groups / 2) + two;
        const std::uint32_t scale = present ? scales[i] : 0, offset = present ? offsets[i] : 0;
        put(2 * two, {f32_of_bf16(scale & 0xffffu), f32_of_bf16(offset & 0xffffu)});
        put(2 * two + 1, {f32_of_bf16(scale >> 16), f32_of_bf16(offset >> 16)});
      }
      continue;
    }
#pragma unroll 2
    for (std::uint32_t group = 0; group < n_groups; ++group)
      put(group, present ? stored_scale(side, at, shared, key, group) : GroupScale{0.0f, 0.0f});
  }
  return __all_sync(~0u, is_exact);
}

}  // namespace kvasir::backend::cuda
