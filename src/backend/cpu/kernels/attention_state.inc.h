// What walks a row's keys carries along for each (query, head) pair: the running maximum, sum and
// output, into which each tile's own are merged in ascending order (docs/numerics.md).

namespace kvasir::backend::cpu {
namespace {

// (query, head) pairs up to which an item waits for memory more than it computes.
constexpr std::size_t kFewPairs = 6;

// Where things lie in the scratch; n: (query, head) pairs, pair = query · heads + head.
struct AttentionScratch {
  float *keys, *values, *q, *p, *out, *largest, *sum;
  std::size_t v_stride;
  bool keeps_tiles = false;  // apart, instead of merging them
};

inline AttentionScratch lay_out(const AttentionJob& job, std::size_t n, float* at) {
  AttentionScratch s{};
  const std::size_t dim16 = (job.head_dim + 15) / 16 * 16, dim32 = (job.head_dim + 31) / 32 * 32;
  s.v_stride = dim16;
  s.keys = at, at += dim32 * kTileKeys;
  s.values = at, at += dim16 * kTileKeys;
  s.q = at, at += n * dim16;
  s.p = at, at += n * kTileKeys;
  s.out = at, at += n * dim16;
  s.largest = at, at += n;
  s.sum = at;
  return s;
}

inline bool rounds_operands(const AttentionJob& job) { return !job.is_f32 && !job.is_f16; }

struct TileState {
  float largest, sum;
};

// Scores → probabilities against the tile's own maximum; keys outside [begin, end) get exactly 0.
inline TileState soften(const AttentionJob& job, bool rounds, float* p, KeyRange keys) {
  const F32x16 factor = set1(job.scale), cap = set1(job.softcap);
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    const F32x16 s = mul(load(p + j), factor);
    store(p + j, job.softcap > 0.0f ? mul(cap, tanh(div(s, cap))) : s);
  }
  for (std::uint32_t j = 0; j < keys.begin; ++j) p[j] = -__builtin_inff();
  for (std::uint32_t j = keys.end; j < kTileKeys; ++j) p[j] = -__builtin_inff();
  const float largest = max_lanes(max(max(load(p), load(p + 16)), max(load(p + 32), load(p + 48))));
  F32x16 sum = zero();
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    const F32x16 e = exp(sub(load(p + j), set1(largest)));
    sum = j == 0 ? e : add(sum, e);
    store(p + j, rounds ? round_bf16(e) : e);
  }
  return {largest, sum_lanes(sum)};
}

inline float exp1(float x) {
  float out[16];
  store(out, exp(set1(x)));
  return out[0];
}

// largest and sum of a pair take in a tile's; keep and gain rescale the running and the tile's
// output.
inline void merge(AttentionScratch& s, std::size_t pair, TileState tile, float* keep, float* gain) {
  if (s.keeps_tiles) {
    s.largest[pair] = tile.largest, s.sum[pair] = tile.sum;
    *keep = *gain = 1.0f;
    return;
  }
  const float before = s.largest[pair], now = before > tile.largest ? before : tile.largest;
  *keep = exp1(before - now);
  *gain = exp1(tile.largest - now);
  s.sum[pair] = fma1(s.sum[pair], *keep, tile.sum * *gain);
  s.largest[pair] = now;
}

inline void start(const AttentionJob& job, const AttentionItem& item, AttentionScratch& s) {
  const std::size_t heads = job.queries_per_kv;
  for (std::size_t pair = 0; pair < item.n_queries * heads; ++pair) {
    const float* const q = job.q + (item.token + pair / heads) * job.q_stride +
                           (item.kv_head * heads + pair % heads) * job.head_dim;
    for_columns(job.head_dim, [&](std::size_t d, std::size_t n) {
      const F32x16 v = load_n(q + d, n);
      store(s.q + pair * s.v_stride + d, rounds_operands(job) ? round_bf16(v) : v);
      store(s.out + pair * s.v_stride + d, zero());
    });
    s.largest[pair] = -__builtin_inff();
    s.sum[pair] = 0.0f;
  }
}

inline void finish(const AttentionJob& job, const AttentionItem& item, AttentionScratch& s) {
  const std::size_t heads = job.queries_per_kv;
  for (std::size_t pair = 0; pair < item.n_queries * heads; ++pair) {
    const std::size_t head = item.kv_head * heads + pair % heads;
    float sum = s.sum[pair];
    F32x16 keep = set1(1.0f);
    if (job.sinks) {
      const float sink = job.sinks[head], before = s.largest[pair],
                  now = before > sink ? before : sink;
      keep = exp(set1(before - now));
      sum = fma1(sum, exp1(before - now), exp1(sink - now));
    }
    float* const out = job.out + (item.token + pair / heads) * job.out_stride + head * job.head_dim;
    for_columns(job.head_dim, [&](std::size_t d, std::size_t n) {
      store_n(out + d, div(mul(load(s.out + pair * s.v_stride + d), keep), set1(sum)), n);
    });
  }
}

// Outputs that take a tile's unchanged: -0 · 1 + x has the bits of x.
inline void await_tile(AttentionScratch& s, std::size_t n) {
  for (std::size_t i = 0; i < n * s.v_stride; i += 16) store(s.out + i, set1(-0.0f));
}

// For a part of an item's tiles, kept apart.
inline void start_part(const AttentionItem& item,
                       AttentionScratch& s,
                       std::size_t n,
                       std::uint32_t* begin,
                       std::uint32_t* end) {
  const std::uint32_t last = item.end_tile * kTileKeys;
  *begin = item.first_tile * kTileKeys;
  *end = last < *end ? last : *end;
  s.keeps_tiles = true;
  await_tile(s, n);
}

inline void keep_tile(AttentionScratch& s, std::size_t n, float* to) {
  for (std::size_t pair = 0; pair < n; ++pair) {
    to[pair] = s.largest[pair];
    to[n + pair] = s.sum[pair];
  }
  for (std::size_t i = 0; i < n * s.v_stride; i += 16) store(to + 2 * n + i, load(s.out + i));
  await_tile(s, n);
}

// attend(tile, keys seen, end of the walk) for the item's tiles in turn: merged, or kept apart
// where the item is a part of a row's. False as soon as one is.
template <class F>
inline bool walk_tiles(const AttentionJob& job,
                       const AttentionItem& item,
                       AttentionScratch& s,
                       F&& attend) {
  const std::size_t n_pairs = std::size_t{item.n_queries} * job.queries_per_kv;
  const KeyRange keys = visible(job, item);
  std::uint32_t begin = keys.begin / kTileKeys * kTileKeys, end = keys.end;
  float* partial = item.partials;
  if (partial) start_part(item, s, n_pairs, &begin, &end);
  for (std::uint32_t tile = begin; tile < end; tile += kTileKeys) {
    if (!attend(tile, keys, end)) return false;
    if (!partial) continue;
    keep_tile(s, n_pairs, partial);
    partial += attention_partial_floats(job.head_dim, n_pairs);
  }
  if (!partial) finish(job, item, s);
  return true;
}

}  // namespace
}  // namespace kvasir::backend::cpu
