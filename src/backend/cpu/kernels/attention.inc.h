// Attention of some queries of one row on one kv head. Keys are walked in tiles of 64 at absolute
// positions. A tile's keys are transposed to f32 [d][key], so that lanes are keys; its values are
// decoded to [key][d], so that lanes are d. Both products use linear's order: even and odd chains
// over steps of 32. Each tile has its own maximum, sum and output from zero, merged into the
// running ones in ascending order (docs/numerics.md).

namespace kvasir::backend::cpu {
namespace {

// Lines of the next tile, asked for a few at a time while this one is worked on.
struct Upcoming {
  struct Range {
    const std::uint8_t *at, *end;
  };
  Range ranges[6];
  int n = 0, current = 0;

  void add(const std::uint8_t* at, std::size_t size_bytes) { ranges[n++] = {at, at + size_bytes}; }
  std::size_t n_lines() const {
    std::size_t lines = 0;
    for (int i = 0; i < n; ++i)
      lines += static_cast<std::size_t>(ranges[i].end - ranges[i].at + 63) / 64;
    return lines;
  }
  void ask(std::size_t n_lines) {
    while (n_lines > 0 && current < n) {
      Range& range = ranges[current];
      const std::size_t left = static_cast<std::size_t>(range.end - range.at + 63) / 64;
      const std::size_t now = left < n_lines ? left : n_lines;
      const std::uint8_t* const at = range.at;
      for (std::size_t i = 0; i < now; ++i) prefetch_beyond_l1(at + 64 * i);
      range.at = at + 64 * now;
      n_lines -= now;
      if (now == left) ++current;
    }
  }
};

// Sixteen dwords of a row (one f32 or two bf16 each); past the end: zeros.
inline U32x16 row_dwords(const std::uint8_t* row, std::size_t dword, std::size_t n_dwords) {
  if (row == nullptr || dword >= n_dwords) return set1_u(0);
  const std::size_t n = n_dwords - dword;
  return bits(load_n(reinterpret_cast<const float*>(row) + dword, n < 16 ? n : 16));
}

void pack_keys(const AttentionJob& job,
               const AttentionItem& item,
               std::uint32_t tile,
               KeyRange range,
               float* keys,
               Upcoming* next = nullptr) {
  const std::size_t n_dwords = job.is_f32 ? job.head_dim : job.head_dim / 2;
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    const std::uint8_t* rows[16];
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t position = tile + j + i;
      rows[i] = position >= range.begin && position < range.end
                    ? key_row(job, item, job.k, position)
                    : nullptr;
    }
    for (std::size_t dword = 0; dword < n_dwords; dword += 16) {
      U32x16 in[16], out[16];
      for (int i = 0; i < 16; ++i) in[i] = row_dwords(rows[i], dword, n_dwords);
      transpose(in, out);
      if (next) next->ask(16);
      for (std::size_t i = 0; i < 16 && dword + i < n_dwords; ++i) {
        if (job.is_f32) {
          store(keys + (dword + i) * kTileKeys + j, from_bits(out[i]));
        } else if (job.is_f16) {
          store(keys + 2 * (dword + i) * kTileKeys + j, widen_f16(out[i]));
          store(keys + (2 * (dword + i) + 1) * kTileKeys + j, widen_f16(shift_right<16>(out[i])));
        } else {
          store(keys + 2 * (dword + i) * kTileKeys + j, from_bits(shift_left<16>(out[i])));
          store(keys + (2 * (dword + i) + 1) * kTileKeys + j,
                from_bits(and_u(out[i], set1_u(0xffff0000u))));
        }
      }
    }
  }
}

void pack_values(const AttentionJob& job,
                 const AttentionItem& item,
                 std::uint32_t tile,
                 KeyRange range,
                 const AttentionScratch& s,
                 Upcoming& next) {
  for (std::uint32_t j = 0; j < kTileKeys; ++j) {
    next.ask(job.head_dim / (job.is_f32 ? 16 : 32));
    if (tile + j < range.begin || tile + j >= range.end) continue;
    const std::uint8_t* const row = key_row(job, item, job.v, tile + j);
    for_columns(job.head_dim, [&](std::size_t d, std::size_t n) {
      const auto* const halves = reinterpret_cast<const std::uint16_t*>(row) + d;
      const F32x16 v = job.is_f32   ? load_n(reinterpret_cast<const float*>(row) + d, n)
                       : job.is_f16 ? load_f16_n(halves, n)
                                    : load_bf16_n(halves, n);
      store(s.values + j * s.v_stride + d, v);
    });
  }
}

// p[pair][key] = q · k for Q pairs.
template <int Q>
inline void score_pairs(const AttentionJob& job, const AttentionScratch& s, std::size_t pair) {
  const float* const q = s.q + pair * s.v_stride;
  F32x16 sums[Q][4];
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sums[i][v] = zero();
  }
  for (std::uint32_t begin = 0; begin < job.head_dim; begin += kStep) {
    const std::uint32_t end = job.head_dim - begin < kStep ? job.head_dim : begin + kStep;
    F32x16 chain[2][Q][4];
#pragma GCC unroll 2
    for (int parity = 0; parity < 2; ++parity) {
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) chain[parity][i][v] = zero();
      }
    }
    for (std::uint32_t d = begin; d < end; d += 2) {
#pragma GCC unroll 2
      for (std::uint32_t parity = 0; parity < 2; ++parity) {
        const float* const k = s.keys + std::size_t{d + parity} * kTileKeys;
        const F32x16 keys[4] = {load(k), load(k + 16), load(k + 32), load(k + 48)};
#pragma GCC unroll 4
        for (int i = 0; i < Q; ++i) {
          const F32x16 value = set1(q[static_cast<std::size_t>(i) * s.v_stride + d + parity]);
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v)
            chain[parity][i][v] = fma(keys[v], value, chain[parity][i][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[i][v] = add(sums[i][v], add(chain[0][i][v], chain[1][i][v]));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      store(s.p + (pair + static_cast<std::size_t>(i)) * kTileKeys + 16 * v, sums[i][v]);
  }
}

// chain[key parity] += p · v over keys [begin, end) of one step, N vectors of d, Q pairs.
template <int Q, int N>
inline __attribute__((always_inline)) void weigh_key(const float* p,
                                                     const float* v,
                                                     std::uint32_t key,
                                                     std::size_t v_stride,
                                                     F32x16 (&chain)[Q][N]) {
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const F32x16 value = load(v + key * v_stride + static_cast<std::size_t>(n) * 16);
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i)
      chain[i][n] = fma(value, set1(p[static_cast<std::size_t>(i) * kTileKeys + key]), chain[i][n]);
  }
}

// The tile's output for Q pairs with the same keys, columns [d, d + 16 N), merged into the running
// output.
template <int Q, int N>
inline void weigh_columns(const AttentionScratch& s,
                          std::size_t pair,
                          KeyRange keys,
                          std::size_t d,
                          const float* keep,
                          const float* gain) {
  const float* const p = s.p + pair * kTileKeys;
  F32x16 sums[Q][N];
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[i][n] = zero();
  }
  for (std::uint32_t step = 0; step < kTileKeys; step += kStep) {
    const std::uint32_t begin = keys.begin > step ? keys.begin : step;
    const std::uint32_t end = keys.end < step + kStep ? keys.end : step + kStep;
    if (begin >= end) continue;
    F32x16 even[Q][N], odd[Q][N];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) even[i][n] = odd[i][n] = zero();
    }
    std::uint32_t key = begin;
    if (key % 2 == 1) weigh_key<Q, N>(p, s.values + d, key++, s.v_stride, odd);
    for (; key + 1 < end; key += 2) {
      weigh_key<Q, N>(p, s.values + d, key, s.v_stride, even);
      weigh_key<Q, N>(p, s.values + d, key + 1, s.v_stride, odd);
    }
    if (key < end) weigh_key<Q, N>(p, s.values + d, key, s.v_stride, even);
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[i][n] = add(sums[i][n], add(even[i][n], odd[i][n]));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
    float* const out = s.out + (pair + static_cast<std::size_t>(i)) * s.v_stride + d;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      store(out + 16 * n, fma(load(out + 16 * n), set1(keep[i]), mul(sums[i][n], set1(gain[i]))));
    }
  }
}

template <int Q>
inline void weigh_pairs(const AttentionScratch& s,
                        std::size_t pair,
                        KeyRange keys,
                        const float* keep,
                        const float* gain) {
  std::size_t d = 0;
  for (; d + 64 <= s.v_stride; d += 64) weigh_columns<Q, 4>(s, pair, keys, d, keep, gain);
  for (; d < s.v_stride; d += 16) weigh_columns<Q, 1>(s, pair, keys, d, keep, gain);
}

// Pairs [pair, pair + n), all with the same keys.
inline void attend_pairs(
    const AttentionJob& job, AttentionScratch& s, std::size_t pair, int n, KeyRange keys) {
  float keep[3], gain[3];
  if (n == 3) score_pairs<3>(job, s, pair);
  if (n == 2) score_pairs<2>(job, s, pair);
  if (n == 1) score_pairs<1>(job, s, pair);
  for (int i = 0; i < n; ++i) {
    const std::size_t at = pair + static_cast<std::size_t>(i);
    merge(s, at, soften(job, rounds_operands(job), s.p + at * kTileKeys, keys), keep + i, gain + i);
  }
  if (n == 3) weigh_pairs<3>(s, pair, keys, keep, gain);
  if (n == 2) weigh_pairs<2>(s, pair, keys, keep, gain);
  if (n == 1) weigh_pairs<1>(s, pair, keys, keep, gain);
}

// attend(pair, n, keys) for runs of pairs with the same keys of the tile, at most 3 at once.
template <class F>
inline void for_pairs(const AttentionJob& job,
                      const AttentionItem& item,
                      std::uint32_t tile,
                      F&& attend) {
  const std::size_t heads = job.queries_per_kv, n = item.n_queries * heads;
  const auto keys_of = [&](std::size_t pair) {
    return inside(visible(job, item, item.position + static_cast<std::uint32_t>(pair / heads)),
                  tile);
  };
  for (std::size_t pair = 0; pair < n;) {
    const KeyRange keys = keys_of(pair);
    int same = 1;
    while (same < 3 && pair + static_cast<std::size_t>(same) < n) {
      const KeyRange next = keys_of(pair + static_cast<std::size_t>(same));
      if (next.begin != keys.begin || next.end != keys.end) break;
      ++same;
    }
    if (keys.begin < keys.end) attend(pair, same, keys);
    pair += static_cast<std::size_t>(same);
  }
}

void merge_tiles(const AttentionJob& job,
                 const AttentionItem& item,
                 const float* partials,
                 std::uint32_t n_tiles,
                 float* scratch) {
  const std::size_t n = std::size_t{item.n_queries} * job.queries_per_kv;
  AttentionScratch s = lay_out(job, n, scratch);
  start(job, item, s);
  for (std::uint32_t tile = 0; tile < n_tiles;
       ++tile, partials += attention_partial_floats(job.head_dim, n)) {
    for (std::size_t pair = 0; pair < n; ++pair) {
      float keep = 0, gain = 0;
      merge(s, pair, {partials[pair], partials[n + pair]}, &keep, &gain);
      const float* const from = partials + 2 * n + pair * s.v_stride;
      float* const out = s.out + pair * s.v_stride;
      for (std::size_t d = 0; d < s.v_stride; d += 16)
        store(out + d, fma(load(out + d), set1(keep), mul(load(from + d), set1(gain))));
    }
  }
  finish(job, item, s);
}

// Keys and values of a tile unpacked for all pairs.
inline void attend_tile(const AttentionJob& job,
                        const AttentionItem& item,
                        AttentionScratch& s,
                        std::uint32_t tile,
                        KeyRange keys,
                        std::uint32_t end) {
  const std::size_t n_pairs = std::size_t{item.n_queries} * job.queries_per_kv;
  Upcoming next;
  const std::uint32_t after = tile + kTileKeys;
  if (n_pairs <= kFewPairs && job.block_tokens >= kTileKeys && after < end) {
    const std::size_t tile_bytes = kTileKeys * job.head_dim * (job.is_f32 ? 4 : 2);
    next.add(key_row(job, item, job.k, after), tile_bytes);
    next.add(key_row(job, item, job.v, after), tile_bytes);
  }
  pack_keys(job, item, tile, keys, s.keys, &next);
  pack_values(job, item, tile, keys, s, next);
  for_pairs(job, item, tile,
            [&](std::size_t pair, int n, KeyRange seen) { attend_pairs(job, s, pair, n, seen); });
}

void attend_exact(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  if (suits_direct(job, item)) return attend_directly(job, item, scratch);
  AttentionScratch s = lay_out(job, std::size_t{item.n_queries} * job.queries_per_kv, scratch);
  start(job, item, s);
  for (std::size_t i = 0; i < kTileKeys * s.v_stride; i += 16) store(s.values + i, zero());
  walk_tiles(job, item, s, [&](std::uint32_t tile, KeyRange keys, std::uint32_t end) {
    attend_tile(job, item, s, tile, keys, end);
    return true;
  });
}

}  // namespace
}  // namespace kvasir::backend::cpu
