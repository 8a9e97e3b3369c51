// Attention of any shape: a warp a query and head. And what follows partial results of any kernel.
#include "backend/cuda/device/attention.cuh"
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/combine.cuh"
#include "backend/cuda/device/plain_attention.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr std::uint32_t kWarps = 4;

// A row's keys and values of one head, element by element.
struct PagedKeys {
  const AttentionParams& p;
  const KvRow& row;
  std::uint32_t head;
  __device__ std::size_t at(std::uint32_t position) const {
    const std::uint32_t block = row.blocks[position / p.block_tokens];
    return (std::size_t{block} * p.n_kv_heads + head) * p.block_tokens + position % p.block_tokens;
  }
  __device__ float key(std::size_t at, std::uint32_t d) const {
    const float x = element_of(p.k, at, d);
    return p.rounds != 0 ? round_to_bf16(x) : x;
  }
  __device__ float value(std::size_t at, std::uint32_t d) const {
    const float x = element_of(p.v, at, d);
    return p.rounds != 0 ? round_to_bf16(x) : x;
  }
};

template <int kPerLane>
__global__ void attend_plain(AttentionParams p) {
  extern __shared__ float shared[];
  const KvRow row = p.rows[blockIdx.y];
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, i = item / p.n_heads,
                      head = item % p.n_heads, token = row.first_token + i;
  if (i >= row.n_new || !serves(p, row)) return;
  float* const q = shared + threadIdx.x / 32 * p.dim;
  for (std::uint32_t d = threadIdx.x % 32; d < p.dim; d += 32) {
    const float x = p.q.row(token)[std::size_t{head} * p.dim + d];
    q[d] = p.rounds != 0 ? round_to_bf16(x) : x;
  }
  __syncwarp();
  const PagedKeys keys{p, row, head / (p.n_heads / p.n_kv_heads)};
  const KeyRange seen = keys_of(p, row, i);
  const PlainShape shape{p.dim, p.dim, p.out_scale, p.rounds != 0};
  const auto score = [&](float s) { return score_of(p, s); };
  const std::uint32_t row_first = keys_of(p, row, 0).begin / kSegment,
                      first = seen.begin / kSegment, last = (seen.end - 1) / kSegment;
  if (p.part_out) {
    for (std::uint32_t s = first + blockIdx.z; s <= last; s += gridDim.z) {
      PlainOutput<kPerLane> out;
      out.walk(shape, keys, score, q, max(seen.begin, s * kSegment),
               min(seen.end, (s + 1) * kSegment));
      const std::size_t at = part_index(p, blockIdx.y, i, head, s - row_first);
      if (threadIdx.x % 32 == 0) p.part_ml[at] = {out.softmax.max, out.softmax.sum};
      out.for_each(p.dim, [&](std::uint32_t d, float& o) { p.part_out[at * p.dim + d] = o; });
    }
    return;
  }
  PlainOutput<kPerLane> total;
  for (std::uint32_t s = first; s <= last; ++s)
    total.add_segment(shape, keys, score, q, max(seen.begin, s * kSegment),
                      min(seen.end, (s + 1) * kSegment));
  const float keep = p.sinks ? add_sink(total.softmax, p.sinks[head]) : 1.0f;
  float* const out = p.out.row(token) + std::size_t{head} * p.dim;
  total.for_each(p.dim, [&](std::uint32_t d, float& o) { out[d] = o * keep / total.softmax.sum; });
}

constexpr unsigned kCombineThreads = 128;
constexpr std::uint32_t kChunk = 128;  // segments whose factors are found together

template <int kPerThread>
__global__ void combine_kernel(AttentionParams p) {
  __shared__ Merge factors[kChunk];
  __shared__ float ending[2];  // the sum, and what a sink leaves of outputs
  begin_early();
  const KvRow row = p.rows[blockIdx.y];
  const std::uint32_t i = blockIdx.x / p.n_heads, head = blockIdx.x % p.n_heads,
                      token = row.first_token + i;
  if (i >= row.n_new || !serves(p, row)) return;
  const auto [base, n] = parts_of(p, row, blockIdx.y, i, head);
  Softmax kept{minus_infinity(), 0.0f};
  float out[kPerThread] = {};
  for (std::uint32_t begin = 0; begin < n; begin += kChunk) {
    const std::uint32_t n_here = min(kChunk, n - begin);
    __syncthreads();
    if (threadIdx.x < 32) find_factors(p.part_ml + base + begin, n_here, kept, factors);
    __syncthreads();
    const float* const parts = p.part_out + (base + begin) * p.dim;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const std::uint32_t d = threadIdx.x + kCombineThreads * j;
      if (d >= p.dim) continue;
#pragma unroll 16
      for (std::uint32_t s = 0; s < n_here; ++s)
        out[j] = fmaf(out[j], factors[s].keep, parts[std::size_t{s} * p.dim + d] * factors[s].gain);
    }
  }
  if (threadIdx.x == 0) {
    ending[1] = p.sinks ? add_sink(kept, p.sinks[head]) : 1.0f;
    ending[0] = kept.sum;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const std::uint32_t d = threadIdx.x + kCombineThreads * j;
    if (d < p.dim) p.out.row(token)[std::size_t{head} * p.dim + d] = out[j] * ending[1] / ending[0];
  }
}

__global__ void unrotate_kernel(AttentionParams p) {
  extern __shared__ float shared[];
  const KvRow row = p.rows[blockIdx.y];
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, i = item / p.n_heads,
                      head = item % p.n_heads;
  if (i >= row.n_new || row.is_encoded == 0) return;
  float* const x = shared + threadIdx.x / 32 * p.dim;
  float* const out = p.out.row(row.first_token + i) + std::size_t{head} * p.dim;
  for (std::uint32_t d = threadIdx.x % 32; d < p.dim; d += 32) x[d] = out[d];
  __syncwarp();
  transform_by_warp(x, p.dim);
  const float scale = rotation_scale(p.dim);
  for (std::uint32_t d = threadIdx.x % 32; d < p.dim; d += 32) out[d] = x[d] * scale * sign_of(d);
}

std::uint32_t n_blocks_of(const AttentionParams& p, const AttentionGrid& g) {
  return (g.most_new * p.n_heads + kWarps - 1) / kWarps;
}

}  // namespace

void launch_attend_plain(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  const auto kernel = p.dim <= 128   ? attend_plain<4>
                      : p.dim <= 512 ? attend_plain<16>
                                     : attend_plain<32>;
  queue.launch(kernel, dim3(n_blocks_of(p, g), g.n_rows, p.part_out ? g.n_splits : 1), 32 * kWarps,
               kWarps * p.dim * sizeof(float), p);
}

void launch_combine(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  queue.launch_early(p.dim <= 128   ? combine_kernel<1>
                     : p.dim <= 256 ? combine_kernel<2>
                                    : combine_kernel<8>,
                     dim3(g.most_new * p.n_heads, g.n_rows), kCombineThreads, 0, p);
}

void launch_unrotate(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  queue.launch(unrotate_kernel, dim3(n_blocks_of(p, g), g.n_rows), 32 * kWarps,
               kWarps * p.dim * sizeof(float), p);
}

}  // namespace kvasir::backend::cuda
