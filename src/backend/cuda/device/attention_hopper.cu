// Prefill on sm_90a: 128 (query, head) pairs of one KV head a block. Two warpgroups have 64 pairs
// each and multiply with wgmma, which adds as a chain of mma.sync does; a third one fetches tiles,
// and makes elements of encoded ones. What is added to what is as in attention_many.cu.
#include "backend/cuda/device/attention_tiles.cuh"
#include "backend/cuda/device/warpgroup.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr std::uint32_t kPairs = 128, kThreads = 3 * kGroup, kStages = 3;

// Rows as wgmma reads them: columns of 64 elements, their 128 bytes swizzled by 16.
template <int kDim>
struct SwizzledRows {
  static constexpr int kElements = kDim;
  static constexpr std::uint32_t kBytes = kTile * kDim * 2;
  __device__ static std::uint32_t place(std::uint32_t row, std::uint32_t chunk) {
    return chunk / 8 * (kTile * 128) + row * 128 + ((chunk ^ row) % 8) * 16;
  }
};

template <int kDim, bool kEncoded>
struct Layout {
  static constexpr std::uint32_t kSideBytes = SwizzledRows<kDim>::kBytes;
  static constexpr std::uint32_t kKeysAt = 0, kValuesAt = kStages * kSideBytes;
  static constexpr std::uint32_t kMergedAt = 2 * kStages * kSideBytes;
  static constexpr std::uint32_t kBarriersAt = kMergedAt + kPairs * kDim * 4;
  static constexpr std::uint32_t kCentroidsAt = kBarriersAt + 128;
  static constexpr std::uint32_t kEncodedAt = kCentroidsAt + 1024;
  std::uint32_t encoded_bytes, size;
  __host__ __device__ Layout(const KvSide& k, const KvSide& v) {
    encoded_bytes = kTile * (k.code_bytes + k.scale_bytes + k.offset_bytes + v.code_bytes +
                             v.scale_bytes + v.offset_bytes);
    size = kEncoded ? kEncodedAt + 2 * encoded_bytes : kEncodedAt;
    size += 1024;  // to begin at a multiple of 1024
  }
};

// Which stage of a ring is next, and the parity of its phase.
struct Turn {
  std::uint32_t stage = 0, parity = 0;
  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// A ring of kStages tiles of one side. Barriers: full ones, then empty ones.
template <int kDim>
struct Ring {
  static constexpr std::uint32_t kBarrierBytes = 16 * kStages;
  static constexpr std::uint32_t kTileBytes = SwizzledRows<kDim>::kBytes;
  std::uint32_t tiles, barriers;

  __device__ void start() const {
    for (std::uint32_t s = 0; s < kStages; ++s) {
      start_barrier(barriers + 8 * s, kGroup);
      start_barrier(barriers + 8 * (kStages + s), 2 * kGroup / 32);
    }
  }
  __device__ std::uint32_t tile(const Turn& turn) const { return tiles + turn.stage * kTileBytes; }
  __device__ std::uint32_t full(const Turn& turn) const { return barriers + 8 * turn.stage; }
  __device__ void await_full(const Turn& turn) const { wait(full(turn), turn.parity); }
  __device__ void await_empty(const Turn& turn) const {
    wait(full(turn) + 8 * kStages, turn.parity ^ 1);  // a ring begins empty
  }
  __device__ void give_back(const Turn& turn) const {  // a warp at a time
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(full(turn) + 8 * kStages);
  }
};

struct Tiles {  // positions
  std::uint32_t begin, end;
  __device__ std::uint32_t n() const { return (end - begin + kTile - 1) / kTile; }
};

// What a thread brings of a tile's keys or values: 16 bytes of every kRows-th row.
template <int kDim>
struct Share {
  static constexpr std::uint32_t kChunks = kDim / 8, kRows = kGroup / kChunks;
  static_assert(kRows % 8 == 0);  // so its rows are swizzled alike
  std::uint32_t row, chunk, place;
  __device__ explicit Share(std::uint32_t thread) : row(thread / kChunks), chunk(thread % kChunks) {
    place = SwizzledRows<kDim>::place(row, chunk);
  }

  // Of a tile that is there as a whole, its rows one after another, and as long as kDim.
  __device__ void fetch_whole(const KvSide& side, std::size_t first, std::uint32_t tile) const {
    const std::byte* const from = side.codes + (first + row) * (2 * kDim) + 16 * chunk;
#pragma unroll
    for (std::uint32_t i = 0; i < kTile / kRows; ++i)
      copy_16_async(tile + place + i * (kRows * 128), from + i * (kRows * 2 * kDim));
  }
  __device__ void fetch_any(const TileSource& source,
                            const KvSide& side,
                            std::uint32_t first_position,
                            std::uint32_t tile) const {
    if (8 * chunk >= source.p.dim) return;
#pragma unroll 1
    for (std::uint32_t i = 0; i < kTile / kRows; ++i) {
      const std::uint32_t position = first_position + row + i * kRows;
      const bool present = position >= source.begin && position < source.end;
      const std::size_t index = present ? source.index(position) : 0;
      copy_16_async(tile + place + i * (kRows * 128),
                    side.codes + index * side.code_bytes + 16 * chunk, present);
    }
  }
};

// Where the next tile lies is read while this one is brought.
template <int kDim>
__device__ void produce_exact(const TileSource& source,
                              Tiles tiles,
                              const Ring<kDim>& keys,
                              const Ring<kDim>& values) {
  const AttentionParams& p = source.p;
  const Share<kDim> share(threadIdx.x % kGroup);
  const bool is_plain = p.block_tokens >= kTile && p.dim == kDim;
  const auto is_whole = [&](std::uint32_t at) {
    return is_plain && at >= source.begin && at + kTile <= source.end;
  };
  const auto first_of = [&](std::uint32_t at) -> std::size_t {
    return is_whole(at) ? source.index(at) : 0;
  };
  std::size_t next = first_of(tiles.begin);
  Turn turn;
  for (std::uint32_t at = tiles.begin; at < tiles.end; at += kTile, turn.next()) {
    const std::size_t first = next;
    const bool whole = is_whole(at);
    next = first_of(at + kTile);
    keys.await_empty(turn);
    whole ? share.fetch_whole(p.k, first, keys.tile(turn))
          : share.fetch_any(source, p.k, at, keys.tile(turn));
    arrive_after_copies(keys.full(turn));
    values.await_empty(turn);
    whole ? share.fetch_whole(p.v, first, values.tile(turn))
          : share.fetch_any(source, p.v, at, values.tile(turn));
    arrive_after_copies(values.full(turn));
  }
  wait_for_copies<0>();  // nothing is on its way to a thread that has ended
}

// Tiles of codes come two deep, and become elements in the rings.
template <int kDim>
__device__ void produce_decoded(const TileSource& source,
                                Tiles tiles,
                                const Ring<kDim>& keys,
                                const Ring<kDim>& values,
                                std::byte* shared) {
  using L = Layout<kDim, true>;
  using Rows = SwizzledRows<kDim>;
  const L layout(source.p.k, source.p.v);
  const std::uint32_t thread = threadIdx.x % kGroup, base = shared_address(shared);
  const auto* const centroids = reinterpret_cast<const float*>(shared + L::kCentroidsAt);
  const auto fetch = [&](std::uint32_t t) {
    if (t < tiles.n())
      fetch_encoded<kGroup>(source, tiles.begin + t * kTile,
                            base + L::kEncodedAt + t % 2 * layout.encoded_bytes, thread);
    commit_copies();
  };
  fetch(0);
  Turn turn;
  for (std::uint32_t t = 0; t < tiles.n(); ++t, turn.next()) {
    wait_for_copies<0>();
    wait_for_group(1);  // tile t is there, tile t - 1 was expanded
    fetch(t + 1);
    const std::byte* const codes = shared + L::kEncodedAt + t % 2 * layout.encoded_bytes;
    const std::uint32_t tile = tiles.begin + t * kTile;
    keys.await_empty(turn);
    expand_side<Rows, kGroup>(source, source.p.k, tile, codes, centroids,
                              shared + (keys.tile(turn) - base), thread);
    order_for_wgmma();
    arrive(keys.full(turn));
    values.await_empty(turn);
    expand_side<Rows, kGroup>(source, source.p.v, tile, codes + kTile * row_bytes_of(source.p.k),
                              centroids, shared + (values.tile(turn) - base), thread);
    order_for_wgmma();
    arrive(values.full(turn));
  }
}

template <int kDim>
struct Consumer {
  static constexpr int kColumns = kDim / 8, kKeys = kTile / 8, kSteps = kDim / 16;
  using Scores = float[kKeys * 4];
  using Weights = std::uint32_t[kKeys / 2][4];

  const AttentionParams& p;
  const Ring<kDim>&keys, &values;
  Tiles tiles;
  float4* merged_out;  // [kColumns], 2 · kGroup apart
  QueryRow rows[2];
  std::uint32_t lane;
  std::uint32_t query[kSteps][4];
  float out[kColumns * 4];  // nothing yet where is_empty
  Softmax softmax[2], merged[2];
  Turn key_turn, value_turn;
  bool is_empty = true;

  __device__ void start() {
    merged[0] = merged[1] = {minus_infinity(), 0.0f};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load_query(p, rows, step, query[step]);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) merged_out[n * 2 * kGroup] = {0.0f, 0.0f, 0.0f, 0.0f};
    softmax[0] = softmax[1] = {minus_infinity(), 0.0f};
  }

  __device__ void mask(std::uint32_t tile, Scores& x) {
    if (p.has_softcap != 0) {
#pragma unroll
      for (int i = 0; i < kKeys * 4; ++i) x[i] = score_of(p, x[i]);
    }
    const bool all_seen = tile >= rows[0].seen.begin && tile + kTile <= rows[0].seen.end &&
                          tile >= rows[1].seen.begin && tile + kTile <= rows[1].seen.end;
    if (__all_sync(~0u, all_seen)) return;
#pragma unroll
    for (int i = 0; i < kKeys * 4; ++i) {
      const std::uint32_t key = tile + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const KeyRange& seen = rows[i / 2 % 2].seen;
      if (key < seen.begin || key >= seen.end) x[i] = minus_infinity();
    }
  }

  // Scores to probabilities, as operand A. keep: what the output so far is multiplied by.
  __device__ void find_weights(Scores& x, Weights& weights, float (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float max = minus_infinity();
#pragma unroll
      for (int n = 0; n < kKeys; ++n)
        max = fmaxf(max, fmaxf(x[4 * n + 2 * r], x[4 * n + 2 * r + 1]));
      max = fmaxf(softmax[r].max, max_of_quad(max) * p.out_scale);
      const float reference = reference_of(max);
      keep[r] = exp2_of(softmax[r].max - reference);
      softmax[r].max = max;
      float sum = 0.0f;
#pragma unroll
      for (int i = 2 * r; i < kKeys * 4; i += 4) {
        const std::uint32_t pair = pack_bf16(exp2_of(fmaf(x[i], p.out_scale, -reference)),
                                             exp2_of(fmaf(x[i + 1], p.out_scale, -reference)));
        weights[i / 8][i / 2 % 4] = pair;
        sum = add_pair(sum, pair);
      }
      softmax[r].sum = fmaf(softmax[r].sum, keep[r], sum);
    }
  }

  __device__ void multiply_keys(Scores& x) {
    const std::uint64_t tile = rows_of_k(keys.tile(key_turn));
    order_for_wgmma();
    hold(x);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply_by_keys(x, query[step], tile + (step / 4 * (kTile * 128) + step % 4 * 32) / 16,
                       step > 0);
    wgmma_commit();
  }
  __device__ void multiply_values(Weights& weights) {
    const std::uint64_t tile = columns_of_n(values.tile(value_turn), kTile * 128);
    order_for_wgmma();
    hold(out);
    hold(weights);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / 2; ++step)
      multiply_by_values(out, weights[step], tile + step * (2048 / 16), step > 0 || !is_empty);
    wgmma_commit();
  }

  __device__ bool ends_segment(std::uint32_t tile) const {
    return tile % kSegment == kSegment - kTile;
  }

  // Of tile and the next one: the next one's weights are found while the tensor cores add up this
  // one's values, and have found the next one's scores before that. A wgmma that is on its way may
  // not see its registers written, so weights take turns.
  __device__ void step(std::uint32_t tile, Scores& x, Weights& now, Weights& next) {
    multiply_keys(x);
    values.await_full(value_turn);
    multiply_values(now);
    wgmma_wait<1>();
    hold(x);
    keys.give_back(key_turn);
    key_turn.next();
    const bool is_end = ends_segment(tile);
    const Softmax ended[2] = {softmax[0], softmax[1]};
    if (is_end) softmax[0] = softmax[1] = {minus_infinity(), 0.0f};
    mask(tile + kTile, x);
    float keep[2];
    find_weights(x, next, keep);
    hold(next);
    // Ends a basic block, too: else the compiler waits for the values first.
    if (tile + 2 * kTile < tiles.end) keys.await_full(key_turn);
    wgmma_wait<0>();
    hold(out);
    hold(now);
    values.give_back(value_turn);
    value_turn.next();
    is_empty = is_end;
    if (is_end) return merge_segment(tile / kSegment, ended);
#pragma unroll
    for (int i = 0; i < kColumns * 4; ++i) out[i] *= keep[i / 2 % 2];
  }

  __device__ void end(std::uint32_t tile, Weights& weights) {
    values.await_full(value_turn);
    multiply_values(weights);
    wgmma_wait<0>();
    hold(out);
    merge_segment(tile / kSegment, softmax);
  }

  __device__ void walk() {
    Scores x;
    Weights even, odd;
    float keep[2];
    keys.await_full(key_turn);
    multiply_keys(x);
    wgmma_wait<0>();
    hold(x);
    keys.give_back(key_turn);
    key_turn.next();
    mask(tiles.begin, x);
    find_weights(x, even, keep);
    const std::uint32_t last = tiles.begin + (tiles.n() - 1) * kTile;
    if (tiles.begin < last) keys.await_full(key_turn);
    std::uint32_t tile = tiles.begin;
    for (; tile + kTile < last; tile += 2 * kTile) {
      step(tile, x, even, odd);
      step(tile + kTile, x, odd, even);
    }
    if (tile == last) return end(last, even);
    step(tile, x, even, odd);
    end(last, odd);
  }

  __device__ void merge_segment(std::uint32_t segment, const Softmax (&ended)[2]) {
    Merge m[2];
    bool meets[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const KeyRange& seen = rows[r].seen;
      meets[r] = segment * kSegment < seen.end && (segment + 1) * kSegment > seen.begin;
      const Softmax whole{ended[r].max, sum_of_quad(ended[r].sum)};
      if (meets[r]) m[r] = merge(merged[r], whole);
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      float4 sum = merged_out[n * 2 * kGroup];
      if (meets[0]) {
        sum.x = fmaf(sum.x, m[0].keep, out[4 * n] * m[0].gain);
        sum.y = fmaf(sum.y, m[0].keep, out[4 * n + 1] * m[0].gain);
      }
      if (meets[1]) {
        sum.z = fmaf(sum.z, m[1].keep, out[4 * n + 2] * m[1].gain);
        sum.w = fmaf(sum.w, m[1].keep, out[4 * n + 3] * m[1].gain);
      }
      merged_out[n * 2 * kGroup] = sum;
    }
  }

  __device__ void finish() {
    float keep[2];
    float* to[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryRow& q = rows[r];
      keep[r] = p.sinks ? add_sink(merged[r], p.sinks[q.head]) : 1.0f;
      to[r] = q.seen.end == 0 ? nullptr : p.out.row(q.token) + std::size_t{q.head} * p.dim;
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const std::uint32_t d = 8 * n + lane % 4 * 2;
      if (d >= p.dim) continue;
      const float4 sum = merged_out[n * 2 * kGroup];
      if (to[0])
        store(rows[0], to[0], d,
              {sum.x * keep[0] / merged[0].sum, sum.y * keep[0] / merged[0].sum});
      if (to[1])
        store(rows[1], to[1], d,
              {sum.z * keep[1] / merged[1].sum, sum.w * keep[1] / merged[1].sum});
    }
  }

  __device__ void store(const QueryRow& q, float* head, std::uint32_t d, float2 two) const {
    *reinterpret_cast<float2*>(head + d) = two;
    if (p.copy.data)
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(p.copy.data) +
                                        p.copy.place(q.token, q.head * p.dim + d)) =
          pack_bf16(two.x, two.y);
  }
};

// Registers of a thread from where the roles part: 2 · consumer + producer are no more than the 3 ·
// 168 that the block begins with; more would be waited for for ever.
template <int kDim, bool kEncoded>
constexpr int kConsumerRegisters = kDim == 64 ? 168
                                   : kEncoded ? 208
                                              : 240;
template <int kDim, bool kEncoded>
constexpr int kProducerRegisters = 504 - 2 * kConsumerRegisters<kDim, kEncoded>;
static_assert(kProducerRegisters<128, false> >= 24 && kProducerRegisters<128, true> >= 24);

template <int kDim, bool kEncoded>
__global__ void __launch_bounds__(kThreads, 1) attend_on_hopper(AttentionParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<kDim, kEncoded>;
  extern __shared__ std::byte raw[];
  std::byte* const shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return;
  const std::uint32_t kv_head = blockIdx.y, heads = p.n_heads / p.n_kv_heads;
  const std::uint32_t m = (gridDim.x - 1 - blockIdx.x) * kPairs;  // the longest walks first
  if (m >= row.n_new * heads) return;
  const KeyRange first_seen = keys_of(p, row, m / heads);
  const Tiles tiles{first_seen.begin / kTile * kTile,
                    keys_of(p, row, min((m + kPairs - 1) / heads, row.n_new - 1)).end};
  const std::uint32_t base = shared_address(shared), group = threadIdx.x / kGroup;
  const Ring<kDim> keys{base + L::kKeysAt, base + L::kBarriersAt};
  const Ring<kDim> values{base + L::kValuesAt, base + L::kBarriersAt + Ring<kDim>::kBarrierBytes};
  if (threadIdx.x == 0) {
    keys.start();
    values.start();
  }
  if (p.dim < kDim) {
    for (std::uint32_t i = 16 * threadIdx.x; i < L::kMergedAt; i += 16 * kThreads)
      *reinterpret_cast<uint4*>(shared + i) = uint4{0, 0, 0, 0};
  }
  if (kEncoded) load_centroids<kThreads>(p.v, reinterpret_cast<float*>(shared + L::kCentroidsAt));
  order_for_wgmma();
  __syncthreads();

  if (group == 2) {
    leave_registers<kProducerRegisters<kDim, kEncoded>>();
    const TileSource source{p, row.blocks, kv_head, first_seen.begin, row.length + row.n_new};
    if constexpr (kEncoded) {
      produce_decoded<kDim>(source, tiles, keys, values, shared);
    } else {
      produce_exact<kDim>(source, tiles, keys, values);
    }
  } else {
    take_registers<kConsumerRegisters<kDim, kEncoded>>();
    const std::uint32_t lane = threadIdx.x % 32, own = m + threadIdx.x / 32 * 16 + lane / 4;
    Consumer<kDim> consumer{
        .p = p,
        .keys = keys,
        .values = values,
        .tiles = tiles,
        .merged_out = reinterpret_cast<float4*>(shared + L::kMergedAt) + threadIdx.x,
        .rows = {query_row(p, row, kv_head, own), query_row(p, row, kv_head, own + 8)},
        .lane = lane};
    consumer.start();
    consumer.walk();
    consumer.finish();
  }
#endif
}

template <int kDim>
void launch(Queue& queue, const AttentionParams& p, dim3 grid) {
  if (p.is_encoded != 0) {
    queue.launch(attend_on_hopper<kDim, true>, grid, kThreads, Layout<kDim, true>(p.k, p.v).size,
                 p);
  } else {
    queue.launch(attend_on_hopper<kDim, false>, grid, kThreads, Layout<kDim, false>(p.k, p.v).size,
                 p);
  }
}

}  // namespace

bool serves_hopper(const AttentionParams& p) {
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return KVASIR_CUDA_HAS_WGMMA != 0 &&
           cudaFuncGetAttributes(&facts, attend_on_hopper<128, false>) == cudaSuccess &&
           facts.binaryVersion == 90;
  }();
  return is_there && p.dim <= 128;
}

void launch_attend_on_hopper(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  const std::uint32_t heads = p.n_heads / p.n_kv_heads;
  const dim3 grid((g.most_new * heads + kPairs - 1) / kPairs, p.n_kv_heads, g.n_rows);
  p.dim <= 64 ? launch<64>(queue, p, grid) : launch<128>(queue, p, grid);
}

}  // namespace kvasir::backend::cuda
