// Attention over latent rows is attention with one key head whose values are the beginnings of its
// keys; with a selection the keys are its places, in their order.
#include "backend/cuda/device/latent.h"
#include "backend/cuda/device/plain_attention.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr std::uint32_t kWarps = 4;
constexpr unsigned kThreads = 256;

__device__ std::size_t slot_of(const KvRow& row,
                               std::uint32_t block_tokens,
                               std::uint32_t position) {
  return std::size_t{row.blocks[position / block_tokens]} * block_tokens + position % block_tokens;
}

__global__ void append_kernel(LatentAppendParams p) {
  const LatentLayer& layer = p.layer;
  const KvRow row = layer.rows[blockIdx.y];
  const std::uint32_t i = blockIdx.x, token = row.first_token + i,
                      dim = layer.rank + layer.rope_dim;
  if (i >= row.n_new) return;
  const std::size_t slot = slot_of(row, layer.block_tokens, row.length + i);
  for (std::uint32_t d = threadIdx.x; d < dim; d += kThreads) {
    const float x = d < layer.rank ? p.latent.row(token)[d] : p.rope_key.row(token)[d - layer.rank];
    store_as(layer.type, layer.latent, slot * dim + d, x);
  }
  if (p.index_key.n_cols == 0) return;
  for (std::uint32_t d = threadIdx.x; d < layer.index_dim; d += kThreads)
    store_as(layer.type, layer.index, slot * layer.index_dim + d, p.index_key.row(token)[d]);
}

// kFours: rows and their parts are multiples of four elements.
template <bool kFours>
struct LatentKeys {
  const LatentAttentionParams& p;
  const KvRow& row;
  const std::uint32_t* selected;  // of this query, or null
  __device__ std::size_t at(std::uint32_t j) const {
    return slot_of(row, p.shared.block_tokens, selected ? selected[j] : j) *
           (p.shared.dim + p.rope_dim);
  }
  __device__ auto key(std::size_t at, std::uint32_t d) const {
    if constexpr (!kFours) {
      return load_as(p.type, p.latent, at + d);
    } else {
      if (p.type == Type::f32) return *reinterpret_cast<const float4*>(p.latent + 4 * (at + d));
      const uint2 x = *reinterpret_cast<const uint2*>(p.latent + 2 * (at + d));
      const auto of = [&](std::uint32_t bits) {
        return p.type == Type::f16 ? f32_of_f16(bits & 0xffffu) : f32_of_bf16(bits & 0xffffu);
      };
      return float4{of(x.x), of(x.x >> 16), of(x.y), of(x.y >> 16)};
    }
  }
  __device__ auto value(std::size_t at, std::uint32_t d) const { return key(at, d); }
};

template <int kPerLane, bool kFours>
__global__ void attend_latent(LatentAttentionParams params) {
  extern __shared__ __align__(16) float shared[];
  const AttentionParams& p = params.shared;
  const KvRow row = p.rows[blockIdx.y];
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, i = item / p.n_heads,
                      head = item % p.n_heads, token = row.first_token + i;
  if (i >= row.n_new || !serves(p, row)) return;
  const std::uint32_t dim = p.dim + params.rope_dim;
  float* const q = shared + threadIdx.x / 32 * dim;
  for (std::uint32_t d = threadIdx.x % 32; d < dim; d += 32) {
    const float x =
        d < p.dim ? p.q.row(token)[std::size_t{head} * p.dim + d]
                  : params.q_rope.row(token)[std::size_t{head} * params.rope_step + d - p.dim];
    q[d] = p.rounds != 0 ? round_to_bf16(x) : x;
  }
  __syncwarp();
  const LatentKeys<kFours> keys{
      params, row, params.selected ? params.selected + std::size_t{token} * params.top_k : nullptr};
  const KeyRange seen = keys_of(p, row, i);
  const PlainShape shape{dim, p.dim, p.out_scale, p.rounds != 0};
  const auto score = [](float s) { return s; };
  const std::uint32_t last = (seen.end - 1) / kSegment;
  if (p.part_out) {
    for (std::uint32_t s = blockIdx.z; s <= last; s += gridDim.z) {
      PlainOutput<kPerLane, kFours> out;
      out.walk(shape, keys, score, q, s * kSegment, min(seen.end, (s + 1) * kSegment));
      const std::size_t at = part_index(p, blockIdx.y, i, head, s);
      if (threadIdx.x % 32 == 0) p.part_ml[at] = {out.softmax.max, out.softmax.sum};
      out.for_each(p.dim, [&](std::uint32_t d, float& o) { p.part_out[at * p.dim + d] = o; });
    }
    return;
  }
  PlainOutput<kPerLane, kFours> total;
  for (std::uint32_t s = 0; s <= last; ++s)
    total.add_segment(shape, keys, score, q, s * kSegment, min(seen.end, (s + 1) * kSegment));
  float* const out = p.out.row(token) + std::size_t{head} * p.dim;
  total.for_each(p.dim, [&](std::uint32_t d, float& o) { out[d] = o * 1.0f / total.softmax.sum; });
}

// A thread a position. Of each head a chain over the elements, of the heads a chain over them.
__global__ void score_kernel(IndexParams p) {
  extern __shared__ float shared[];
  const LatentLayer& layer = p.layer;
  const KvRow row = layer.rows[blockIdx.z];
  const std::uint32_t i = blockIdx.y, token = row.first_token + i, n = row.length + i + 1;
  if (i >= row.n_new || token < p.first_token || token >= p.first_token + p.n_tokens) return;
  if (n <= p.top_k || blockIdx.x * kThreads >= n) return;
  const std::uint32_t width = p.n_heads * layer.index_dim;
  float *const q = shared, *const weights = shared + width;
  for (std::uint32_t d = threadIdx.x; d < width; d += kThreads)
    q[d] = round_as(layer.type, p.q.row(token)[d]);
  for (std::uint32_t h = threadIdx.x; h < p.n_heads; h += kThreads)
    weights[h] = p.weights.row(token)[h];
  __syncthreads();
  const std::uint32_t position = blockIdx.x * kThreads + threadIdx.x;
  if (position >= n) return;
  const std::size_t at = slot_of(row, layer.block_tokens, position) * layer.index_dim;
  float sum = 0.0f;
  for (std::uint32_t h = 0; h < p.n_heads; ++h) {
    float s = 0.0f;
    for (std::uint32_t d = 0; d < layer.index_dim; ++d)
      s = fmaf(load_as(layer.type, layer.index, at + d), q[h * layer.index_dim + d], s);
    sum = fmaf(weights[h], 0.0f > s ? 0.0f : s, sum);
  }
  p.scores[std::size_t{token - p.first_token} * p.longest + position] = sum;
}

// Larger keys are better scores; a NaN is minus infinity; +0 and -0 are one.
__device__ std::uint32_t key_of(float x) {
  if (x != x) x = minus_infinity();
  if (x == 0.0f) x = 0.0f;
  const std::uint32_t u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// The k-th largest key of scores[n], by counting its bytes from the highest, and how many of the
// keys equal to it belong to the best k.
struct Border {
  std::uint32_t key, n_equal;
};
__device__ Border find_border(const float* scores, std::uint32_t n, std::uint32_t k) {
  __shared__ std::uint32_t counts[256], found[2];
  std::uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < n; i += kThreads) {
      const std::uint32_t key = key_of(scores[i]);
      const bool matches = shift == 24 || key >> (shift + 8) == prefix >> (shift + 8);
      if (matches) atomicAdd(&counts[key >> shift & 255u], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint32_t left = k, byte = 255;
      while (counts[byte] < left) left -= counts[byte--];
      found[0] = byte, found[1] = left;
    }
    __syncthreads();
    prefix |= found[0] << shift;
    k = found[1];
    __syncthreads();
  }
  return {prefix, k};
}

// Where this thread's item goes among those before it in the block, and their number.
struct Place {
  std::uint32_t before, total;
};
__device__ Place place_of(bool counts) {
  __shared__ std::uint32_t sums[kThreads / 32];
  const unsigned mask = __ballot_sync(~0u, counts);
  const std::uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) sums[warp] = static_cast<std::uint32_t>(__popc(mask));
  __syncthreads();
  Place out{static_cast<std::uint32_t>(__popc(mask & ((1u << (threadIdx.x % 32)) - 1u))), 0};
  for (std::uint32_t w = 0; w < kThreads / 32; ++w) {
    if (w < warp) out.before += sums[w];
    out.total += sums[w];
  }
  __syncthreads();
  return out;
}

__global__ void select_kernel(IndexParams p) {
  const KvRow row = p.layer.rows[blockIdx.y];
  const std::uint32_t i = blockIdx.x, token = row.first_token + i, n = row.length + i + 1;
  if (i >= row.n_new || token < p.first_token || token >= p.first_token + p.n_tokens) return;
  std::uint32_t* const selected = p.selected + std::size_t{token} * p.top_k;
  if (n <= p.top_k) {
    for (std::uint32_t j = threadIdx.x; j < n; j += kThreads) selected[j] = j;
    return;
  }
  const float* const scores = p.scores + std::size_t{token - p.first_token} * p.longest;
  const Border border = find_border(scores, n, p.top_k);
  std::uint32_t n_written = 0, n_equal = 0;
  for (std::uint32_t begin = 0; begin < n; begin += kThreads) {
    const std::uint32_t position = begin + threadIdx.x;
    const std::uint32_t key = position < n ? key_of(scores[position]) : 0;
    const bool is_equal = position < n && key == border.key;
    const Place equal = place_of(is_equal);
    const bool is_chosen =
        position < n && (key > border.key || (is_equal && n_equal + equal.before < border.n_equal));
    const Place chosen = place_of(is_chosen);
    if (is_chosen) selected[n_written + chosen.before] = position;
    n_equal += equal.total;
    n_written += chosen.total;
  }
}

}  // namespace

void launch_latent_append(Queue& queue,
                          const LatentAppendParams& p,
                          std::uint32_t n_rows,
                          std::uint32_t most_new) {
  queue.launch(append_kernel, dim3(most_new, n_rows), kThreads, 0, p);
}

void launch_latent_attention(Queue& queue, const LatentAttentionParams& p, const AttentionGrid& g) {
  const std::uint32_t rank = p.shared.dim;
  const auto kernel_of = [&](auto is_fours) {
    constexpr bool kFours = decltype(is_fours)::value;
    return rank <= 128   ? attend_latent<4, kFours>
           : rank <= 512 ? attend_latent<16, kFours>
                         : attend_latent<32, kFours>;
  };
  queue.launch(rank % 4 == 0 && p.rope_dim % 4 == 0 ? kernel_of(std::true_type{})
                                                    : kernel_of(std::false_type{}),
               dim3((g.most_new * p.shared.n_heads + kWarps - 1) / kWarps, g.n_rows,
                    p.shared.part_out ? g.n_splits : 1),
               32 * kWarps, kWarps * (rank + p.rope_dim) * sizeof(float), p);
}

void launch_index_scores(Queue& queue,
                         const IndexParams& p,
                         std::uint32_t n_rows,
                         std::uint32_t most_new) {
  queue.launch(score_kernel, dim3((p.longest + kThreads - 1) / kThreads, most_new, n_rows),
               kThreads, (p.n_heads * p.layer.index_dim + p.n_heads) * sizeof(float), p);
}

void launch_index_select(Queue& queue,
                         const IndexParams& p,
                         std::uint32_t n_rows,
                         std::uint32_t most_new) {
  queue.launch(select_kernel, dim3(most_new, n_rows), kThreads, 0, p);
}

}  // namespace kvasir::backend::cuda
