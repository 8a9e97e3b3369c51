// A lone query on tiles of bf16 keys and values: operands go from the rows straight into the
// products, and no tile is unpacked into memory. The same steps and bits as attention.inc.h. The
// unit decides by what: attention_direct_floats.inc.h or attention_direct_dots.inc.h.

namespace kvasir::backend::cpu {
namespace {

constexpr int kDirectPairs = 4;

// The tile's output for Q pairs, merged into the running one. Values are walked a step of keys at a
// time, as they lie.
template <int Q>
inline void weigh_tile_directly(const AttentionJob& job,
                                const AttentionScratch& s,
                                const DirectRows& values,
                                std::size_t pair,
                                const float* keep,
                                const float* gain) {
  const float* const p = s.p + pair * kTileKeys;
  float* const sums = s.values;  // nothing is unpacked there
  for (std::size_t i = 0; i < Q * s.v_stride; i += 16) store(sums + i, zero());
  for (std::uint32_t step = 0; step < kTileKeys; step += kStep) {
    const KeyRange keys{values.seen.begin > step ? values.seen.begin : step,
                        values.seen.end < step + kStep ? values.seen.end : step + kStep};
    if (keys.begin < keys.end) weigh_step<Q>(job, s, values, p, keys, sums);
  }
  for (std::size_t i = 0; i < Q; ++i) {
    const F32x16 kept = set1(keep[i]), gained = set1(gain[i]);
    float* const out = s.out + (pair + i) * s.v_stride;
    for (std::size_t d = 0; d < job.head_dim; d += 32) {
      const float* const sum = sums + i * s.v_stride + d;
      const F32x16 first = first_columns(sum), last = last_columns(sum);
      store(out + d, fma(load(out + d), kept, mul(first, gained)));
      store(out + d + 16, fma(load(out + d + 16), kept, mul(last, gained)));
    }
  }
}

template <int Q>
inline void attend_pairs_directly(const AttentionJob& job,
                                  AttentionScratch& s,
                                  const DirectRows& keys,
                                  const DirectRows& values,
                                  std::size_t pair) {
  float keep[Q], gain[Q];
  score_directly<Q>(job, s, keys, pair);
  for (std::size_t i = 0; i < Q; ++i)
    merge(s, pair + i, soften(job, /*rounds=*/true, s.p + (pair + i) * kTileKeys, keys.seen),
          keep + i, gain + i);
  weigh_tile_directly<Q>(job, s, values, pair, keep, gain);
}

inline bool suits_direct(const AttentionJob& job, const AttentionItem& item) {
  return kFusesKvCodes && rounds_operands(job) && item.n_queries == 1 &&
         job.queries_per_kv <= kFewPairs && job.head_dim % kStep == 0 &&
         job.block_tokens % kTileKeys == 0;
}

// `end`: of the keys that the item walks.
inline void attend_tile_directly(const AttentionJob& job,
                                 const AttentionItem& item,
                                 AttentionScratch& s,
                                 std::uint32_t tile,
                                 KeyRange keys_of_item,
                                 std::uint32_t end) {
  const std::size_t n = job.queries_per_kv, row_bytes = std::size_t{job.head_dim} * 2;
  const std::uint32_t after = tile + kTileKeys;
  const KeyRange seen = inside(keys_of_item, tile);
  const DirectRows values{key_row(job, item, job.v, tile), row_bytes,
                          after < end ? key_row(job, item, job.k, after) : nullptr, seen};
  const DirectRows keys{key_row(job, item, job.k, tile), row_bytes, values.at, seen};
  for (std::size_t pair = 0; pair < n;) {
    const std::size_t left = n - pair, now = left > kDirectPairs ? (left + 1) / 2 : left;
    if (now == 4) attend_pairs_directly<4>(job, s, keys, values, pair);
    if (now == 3) attend_pairs_directly<3>(job, s, keys, values, pair);
    if (now == 2) attend_pairs_directly<2>(job, s, keys, values, pair);
    if (now == 1) attend_pairs_directly<1>(job, s, keys, values, pair);
    pair += now;
  }
}

void attend_directly(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  AttentionScratch s = lay_out(job, job.queries_per_kv, scratch);
  start(job, item, s);
  place_heads(job, s);
  walk_tiles(job, item, s, [&](std::uint32_t tile, KeyRange keys, std::uint32_t end) {
    attend_tile_directly(job, item, s, tile, keys, end);
    return true;
  });
}

}  // namespace
}  // namespace kvasir::backend::cpu
