// Tiles of 64 keys and values in shared memory, as bf16 rows padded by 16 bytes (so that the 8 rows
// of a matrix lie in different banks). Exact rows are copied as they are. Encoded rows are copied
// as bytes, part after part, and become elements in shared memory: the history is read once, in its
// stored form. Positions without a key are zeros.
#pragma once

#include <type_traits>

#include "backend/cuda/device/attention.cuh"
#include "backend/cuda/device/kv_side.cuh"
#include "backend/cuda/device/tensor_core.cuh"

namespace kvasir::backend::cuda {

// Where 16 bytes of a tile of rows of kDim elements lie: in padded rows.
template <int kDim>
constexpr std::uint32_t kRowStride = 2 * kDim + 16;
template <int kDim>
constexpr std::uint32_t kTileBytes = kTile* kRowStride<kDim>;
template <int kDim>
struct PaddedRows {
  static constexpr int kElements = kDim;
  static constexpr std::uint32_t kBytes = kTileBytes<kDim>;
  __device__ static std::uint32_t place(std::uint32_t row, std::uint32_t chunk) {
    return row * kRowStride<kDim> + 16 * chunk;
  }
};

// What a block reads: one row's keys of one head, of which [begin, end) are there.
struct TileSource {
  const AttentionParams& p;
  const std::uint32_t* blocks;
  std::uint32_t head, begin, end;

  __device__ std::size_t index(std::uint32_t position) const {
    const std::uint32_t block = blocks[position >> p.block_shift];
    return (std::size_t{block} * p.n_kv_heads + head) * p.block_tokens +
           (position & (p.block_tokens - 1));
  }
};

// The kThreads threads of which this is number `thread`.
template <class Rows, int kThreads>
__device__ void fetch_exact(const TileSource& source,
                            std::uint32_t tile,
                            std::uint32_t to,
                            std::uint32_t thread = threadIdx.x) {
  constexpr std::uint32_t kChunks = Rows::kElements / 8;
  const AttentionParams& p = source.p;
  // Rows of a block lie one after another: of a whole tile where blocks are no smaller.
  const bool is_run = p.block_tokens >= kTile;
  const std::size_t run_at = is_run ? source.index(tile) * p.k.code_bytes : 0;
#pragma unroll
  for (std::uint32_t i = thread; i < kTile * kChunks; i += kThreads) {
    const std::uint32_t r = i / kChunks, c = i % kChunks, position = tile + r;
    if (8 * c >= p.dim) continue;
    const bool present = position >= source.begin && position < source.end;
    std::size_t at = run_at + r * p.k.code_bytes + 16 * c;
    if (!is_run) at = (present ? source.index(position) : 0) * p.k.code_bytes + 16 * c;
    const std::uint32_t place = to + Rows::place(r, c);
    copy_16_async(place, p.k.codes + at, present);
    copy_16_async(place + Rows::kBytes, p.v.codes + at, present);
  }
}

// Encoded tiles: codes, scales and offsets of 64 keys, then of 64 values.
__device__ inline std::uint32_t row_bytes_of(const KvSide& side) {
  return side.code_bytes + side.scale_bytes + side.offset_bytes;
}

template <int kThreads>
__device__ void fetch_part(const TileSource& source,
                           std::uint32_t tile,
                           const std::byte* plane,
                           std::uint32_t row_bytes,
                           std::uint32_t to,
                           std::uint32_t thread) {
  const std::uint32_t run = min(kTile, source.p.block_tokens);  // rows that lie one after another
  for (std::uint32_t r = 0; r < kTile; r += run) {
    const std::uint32_t position = tile + r;
    if (position >= source.end || position + run <= source.begin) continue;
    const std::byte* const from = plane + source.index(position) * row_bytes;
    for (std::uint32_t i = 16 * thread; i < run * row_bytes; i += 16 * kThreads)
      copy_16_async(to + r * row_bytes + i, from + i);
  }
}
template <int kThreads>
__device__ void fetch_encoded(const TileSource& source,
                              std::uint32_t tile,
                              std::uint32_t to,
                              std::uint32_t thread = threadIdx.x) {
  for (const KvSide* side : {&source.p.k, &source.p.v}) {
    fetch_part<kThreads>(source, tile, side->codes, side->code_bytes, to, thread);
    to += kTile * side->code_bytes;
    fetch_part<kThreads>(source, tile, side->scales, side->scale_bytes, to, thread);
    to += kTile * side->scale_bytes;
    if (side->offset_bytes == 0) continue;
    fetch_part<kThreads>(source, tile, side->offsets, side->offset_bytes, to, thread);
    to += kTile * side->offset_bytes;
  }
}

// 32 codes of a width as words, from an address that is a multiple of 4, 8 or 16 as their bytes'
// number is.
__device__ inline void load_codes(std::uint32_t (&words)[8],
                                  const std::byte* from,
                                  std::uint32_t bits) {
  if (bits == 8) {
    *reinterpret_cast<uint4*>(words) = reinterpret_cast<const uint4*>(from)[0];
    *reinterpret_cast<uint4*>(words + 4) = reinterpret_cast<const uint4*>(from)[1];
  } else if (bits == 4) {
    *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(from);
  } else if (bits == 2) {
    *reinterpret_cast<uint2*>(words) = *reinterpret_cast<const uint2*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < 5; ++i)
      if (i < static_cast<int>(bits)) words[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
  }
}
template <int kBits>
struct Codes {
  const std::uint32_t (&words)[8];
  __device__ std::uint32_t operator[](int i) const {  // i known at compile time
    const int bit = i * kBits, word = bit / 32, place = bit % 32;
    std::uint32_t window = words[word] >> place;
    if (place + kBits > 32) window |= words[word + 1] << (32 - place);
    return window & ((1u << kBits) - 1u);
  }
  // Code i as a float: the bits of 2^23 + code, less 2^23. Signed ones, of 8 bits: 128 more each.
  template <bool kSigned>
  __device__ float as_float(int i) const {
    if constexpr (kBits == 8) {
      const std::uint32_t word = kSigned ? words[i / 4] ^ 0x80808080u : words[i / 4];
      const std::uint32_t bits =
          __byte_perm(word, 0x4b000000u, 0x7440u + static_cast<unsigned>(i % 4));
      return __uint_as_float(bits) - (kSigned ? 8388736.0f : 8388608.0f);
    }
    return __uint_as_float(0x4b000000u | (*this)[i]) - 8388608.0f;
  }
};

template <KvKind kKind, int kBits>
__device__ float element_of_code(const Codes<kBits>& codes,
                                 int i,
                                 GroupScale g,
                                 const float* centroids) {
  if constexpr (kKind == KvKind::affine)
    return fmaf(codes.template as_float<false>(i), g.scale, g.offset);
  if constexpr (kKind == KvKind::turbo_values) return centroids[codes[i]] * g.scale;
  return (codes.template as_float<kBits == 8>(i) + g.offset) * g.scale;
}

// A piece: 32 codes of a row and the scale and the offset of their group, 16 bits each.
struct Piece {
  std::uint32_t words[8], scales;
};

// f(kind, bits), constants.
template <class F>
__device__ void with_codec(const KvSide& side, F&& f) {
  constexpr auto kAffine = std::integral_constant<KvKind, KvKind::affine>{};
  constexpr auto kKeys = std::integral_constant<KvKind, KvKind::turbo_keys>{};
  constexpr auto kValues = std::integral_constant<KvKind, KvKind::turbo_values>{};
  constexpr auto k2 = std::integral_constant<int, 2>{};
  constexpr auto k3 = std::integral_constant<int, 3>{};
  constexpr auto k4 = std::integral_constant<int, 4>{};
  constexpr auto k5 = std::integral_constant<int, 5>{};
  constexpr auto k8 = std::integral_constant<int, 8>{};
  if (side.kind == KvKind::affine) {
    side.bits == 8 ? f(kAffine, k8) : f(kAffine, k4);
  } else if (side.kind == KvKind::turbo_keys) {
    side.bits == 2   ? f(kKeys, k2)
    : side.bits == 4 ? f(kKeys, k4)
    : side.bits == 5 ? f(kKeys, k5)
                     : f(kKeys, k8);
  } else {
    side.bits == 2   ? f(kValues, k2)
    : side.bits == 3 ? f(kValues, k3)
    : side.bits == 4 ? f(kValues, k4)
    : side.bits == 5 ? f(kValues, k5)
                     : f(kValues, k8);
  }
}

// A piece's elements to chunks 4 c … 4 c + 3 of row r.
template <class Rows, KvKind kKind, int kBits>
__device__ void store_piece(
    const Piece& piece, const float* centroids, std::byte* to, std::uint32_t r, std::uint32_t c) {
  constexpr bool kIsAffine = kKind == KvKind::affine;
  const std::uint32_t scale = piece.scales & 0xffffu, offset = piece.scales >> 16;
  const GroupScale group{kIsAffine ? f32_of_bf16(scale) : f32_of_f16(scale),
                         kIsAffine ? f32_of_bf16(offset) : f32_of_f16(offset)};
  const Codes<kBits> codes{piece.words};
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    std::uint32_t out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int e = 8 * quarter + 2 * j;
      out[j] = pack_bf16(element_of_code<kKind>(codes, e, group, centroids),
                         element_of_code<kKind>(codes, e + 1, group, centroids));
    }
    *reinterpret_cast<uint4*>(to + Rows::place(r, 4 * c + quarter)) =
        uint4{out[0], out[1], out[2], out[3]};
  }
}
template <class Rows>
__device__ void store_zeros(std::byte* to, std::uint32_t r, std::uint32_t c) {
#pragma unroll
  for (std::uint32_t quarter = 0; quarter < 4; ++quarter)
    *reinterpret_cast<uint4*>(to + Rows::place(r, 4 * c + quarter)) = uint4{0, 0, 0, 0};
}

__device__ inline std::uint32_t half_at(const std::byte* plane, std::size_t i) {
  return reinterpret_cast<const std::uint16_t*>(plane)[i];
}
// Piece c of row `row` of planes.
__device__ inline void load_piece(Piece& piece,
                                  const KvSide& side,
                                  const std::byte* codes,
                                  const std::byte* scales,
                                  const std::byte* offsets,
                                  std::size_t row,
                                  std::uint32_t c) {
  const std::uint32_t g = c >> (side.group >> 6);  // a group is 1, 2 or 4 pieces
  load_codes(piece.words, codes + row * side.code_bytes + c * 4 * side.bits, side.bits);
  piece.scales = half_at(scales + row * side.scale_bytes, g);
  if (side.offset_bytes != 0) piece.scales |= half_at(offsets + row * side.offset_bytes, g) << 16;
}

template <class Rows, int kThreads>
__device__ void expand_side(const TileSource& source,
                            const KvSide& side,
                            std::uint32_t tile,
                            const std::byte* from,
                            const float* centroids,
                            std::byte* to,
                            std::uint32_t thread) {
  constexpr std::uint32_t kChunks = Rows::kElements / 32;
  const std::byte* const scales = from + kTile * side.code_bytes;
  const std::byte* const offsets = scales + kTile * side.scale_bytes;
  with_codec(side, [&](auto kind, auto bits) {
#pragma unroll 2
    for (std::uint32_t i = thread; i < kTile * kChunks; i += kThreads) {
      const std::uint32_t r = i / kChunks, c = i % kChunks, position = tile + r;
      if (32 * c >= source.p.dim) continue;
      if (position < source.begin || position >= source.end) {
        store_zeros<Rows>(to, r, c);
        continue;
      }
      Piece piece;
      load_piece(piece, side, from, scales, offsets, r, c);
      store_piece<Rows, kind.value, bits.value>(piece, centroids, to, r, c);
    }
  });
}
// Both sides of an encoded tile to elements.
template <class Rows, int kThreads>
__device__ void expand_tile(const TileSource& source,
                            std::uint32_t tile,
                            const std::byte* from,
                            const float* centroids,
                            std::byte* to,
                            std::uint32_t thread = threadIdx.x) {
  const std::byte* const values = from + kTile * row_bytes_of(source.p.k);
  expand_side<Rows, kThreads>(source, source.p.k, tile, from, centroids, to, thread);
  expand_side<Rows, kThreads>(source, source.p.v, tile, values, centroids, to + Rows::kBytes,
                              thread);
}

// Shared memory of a block, zeroed where rows are shorter than kDim; the centroids of the values.
template <int kThreads>
__device__ void clear(std::byte* memory, std::uint32_t n_bytes) {
  for (std::uint32_t i = 16 * threadIdx.x; i < n_bytes; i += 16 * kThreads)
    *reinterpret_cast<uint4*>(memory + i) = uint4{0, 0, 0, 0};
}
template <int kThreads>
__device__ void load_centroids(const KvSide& side, float* to) {
  if (side.kind != KvKind::turbo_values) return;
  for (std::uint32_t i = threadIdx.x; i < 1u << side.bits; i += kThreads)
    to[i] = centroid_of(side.bits, i);
}

// A pair (query, head of the KV head) as a row of the products.
struct QueryRow {
  std::uint32_t i, token, head;  // i: which token of the row
  KeyRange seen;                 // empty: no such pair
};
__device__ inline QueryRow query_row(const AttentionParams& p,
                                     const KvRow& row,
                                     std::uint32_t kv_head,
                                     std::uint32_t m) {
  const std::uint32_t heads = p.n_heads / p.n_kv_heads, i = m / heads;
  if (i >= row.n_new) return {0, row.first_token, kv_head * heads, {0, 0}};
  return {i, row.first_token + i, kv_head * heads + m % heads, keys_of(p, row, i)};
}

// Elements d, d + 1 of a pair's query as bf16.
__device__ inline std::uint32_t query_pair(const AttentionParams& p,
                                           const QueryRow& q,
                                           std::uint32_t d) {
  if (q.seen.end == 0 || d >= p.dim) return 0;
  const float* const x = p.q.row(q.token) + std::size_t{q.head} * p.dim + d;
  return pack_bf16(x[0], x[1]);
}
// Operand A of the scores: rows g and g + 8, 16 elements from 16 · step on.
__device__ inline void load_query(const AttentionParams& p,
                                  const QueryRow (&rows)[2],
                                  std::uint32_t step,
                                  std::uint32_t (&a)[4]) {
  const std::uint32_t d = 16 * step + threadIdx.x % 4 * 2;
  a[0] = query_pair(p, rows[0], d), a[1] = query_pair(p, rows[1], d);
  a[2] = query_pair(p, rows[0], d + 8), a[3] = query_pair(p, rows[1], d + 8);
}

// The sum over the four lanes of a row, in each of them the same bits.
__device__ inline float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
// The values of a word of probabilities, the lower first, onto a sum.
__device__ inline float add_pair(float sum, std::uint32_t pair) {
  return (sum + __uint_as_float(pair << 16)) + __uint_as_float(pair & 0xffff0000u);
}

}  // namespace kvasir::backend::cuda
