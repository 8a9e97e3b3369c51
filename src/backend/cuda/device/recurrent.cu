// A row's tokens in order, whatever the chunks: a convolution's taps by ascending age, a state's
// rows each in the registers of 8 lanes from the first token of a step to its last.
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/recurrent.h"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::uint32_t kTokensABlock = 32;

// Input `at` of a row's channel; the tail's are before 0.
__device__ float input_of(const ConvParams& p, const RecurrentRow& row, int at, std::uint32_t c) {
  if (at >= 0) return round_as(p.type, p.x.row(row.first_token + static_cast<unsigned>(at))[c]);
  if (row.conv_from == nullptr) return 0.0f;
  const auto place = static_cast<std::uint32_t>(at + static_cast<int>(p.kernel) - 1);
  return load_as(p.type, row.conv_from, std::size_t{place} * p.n_channels + c);
}

__global__ void conv_kernel(ConvParams p) {
  const RecurrentRow row = p.rows[blockIdx.z];
  const std::uint32_t c = blockIdx.x * kThreads + threadIdx.x, begin = blockIdx.y * kTokensABlock;
  if (c >= p.n_channels) return;
  for (std::uint32_t t = begin; t < min(begin + kTokensABlock, row.n_new); ++t) {
    float sum = 0.0f;
    for (std::uint32_t j = 0; j < p.kernel; ++j) {
      const int at = static_cast<int>(t + j) - static_cast<int>(p.kernel) + 1;
      sum = fmaf(p.weight[std::size_t{j} * p.n_channels + c], input_of(p, row, at, c), sum);
    }
    if (p.bias) sum += p.bias[c];
    p.out.row(row.first_token + t)[c] = p.silu != 0 ? silu_of(sum) : sum;
  }
}

// After every output is there: the new tail may take the old one's place. Its places are written in
// ascending order and read from later ones.
__global__ void tail_kernel(ConvParams p) {
  const RecurrentRow row = p.rows[blockIdx.y];
  const std::uint32_t c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= p.n_channels) return;
  for (std::uint32_t j = 0; j + 1 < p.kernel; ++j) {
    const int at = static_cast<int>(row.n_new + j) - static_cast<int>(p.kernel) + 1;
    store_as(p.type, row.conv_to, std::size_t{j} * p.n_channels + c, input_of(p, row, at, c));
  }
}

__global__ void delta_gates_kernel(DeltaGatesParams p) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= std::size_t{p.a.n_rows} * p.a.n_cols) return;
  const std::size_t t = i / p.a.n_cols, h = i % p.a.n_cols;
  const float x = p.a.row(t)[h] + p.dt_bias[h], b = p.b.row(t)[h];
  p.decay.row(t)[h] = expf(-(expf(p.a_log[h]) * softplus_of(x)));
  p.beta.row(t)[h] = sigmoid_of(b);
}

constexpr std::uint32_t kLanes = 8, kRowsABlock = kThreads / kLanes;

// Σ over the 8 lanes of a row, in each of them the same bits.
__device__ float sum_of_lanes(float x) {
  for (int half = kLanes / 2; half > 0; half /= 2) x += __shfl_xor_sync(~0u, x, half, kLanes);
  return x;
}

// Lane l of a row d has columns l, l + 8, …
template <int kPerLane>
__global__ void gated_delta_kernel(GatedDeltaParams p) {
  __shared__ float keys[2][kLanes * kPerLane], queries[2][kLanes * kPerLane];
  const RecurrentRow row = p.rows[blockIdx.z];
  const std::uint32_t head = blockIdx.y, lane = threadIdx.x % kLanes,
                      d = blockIdx.x * kRowsABlock + threadIdx.x / kLanes,
                      key_at = head / p.values_per_key * p.key_dim;
  const bool is_row = d < p.value_dim;
  const std::size_t state_at = (std::size_t{head} * p.value_dim + (is_row ? d : 0)) * p.key_dim;
  float s[kPerLane];
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const std::uint32_t i = lane + kLanes * j;
    s[j] = row.delta_from && is_row && i < p.key_dim ? row.delta_from[state_at + i] : 0.0f;
  }
  const auto load = [&](std::uint32_t t) {
    for (std::uint32_t i = threadIdx.x; i < kLanes * kPerLane; i += kThreads) {
      const bool inside = i < p.key_dim;
      keys[t % 2][i] = inside ? p.k.row(row.first_token + t)[key_at + i] : 0.0f;
      queries[t % 2][i] = inside ? p.q.row(row.first_token + t)[key_at + i] : 0.0f;
    }
  };
  if (row.n_new > 0) load(0);
  for (std::uint32_t t = 0; t < row.n_new; ++t) {
    __syncthreads();
    if (t + 1 < row.n_new) load(t + 1);
    const std::size_t token = row.first_token + t;
    const float decay = p.decay.row(token)[head], beta = p.beta.row(token)[head];
    const float v = is_row ? p.v.row(token)[std::size_t{head} * p.value_dim + d] : 0.0f;
    const float *const k = keys[t % 2], *const q = queries[t % 2];
    float u = 0.0f, y = 0.0f;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      s[j] *= decay;
      u = fmaf(s[j], k[lane + kLanes * j], u);
    }
    const float delta = (v - sum_of_lanes(u)) * beta;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      s[j] = fmaf(delta, k[lane + kLanes * j], s[j]);
      y = fmaf(s[j], q[lane + kLanes * j], y);
    }
    y = sum_of_lanes(y);
    if (p.out.data && is_row && lane == 0)
      p.out.row(token)[std::size_t{head} * p.value_dim + d] = y;
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const std::uint32_t i = lane + kLanes * j;
    if (is_row && i < p.key_dim) row.delta_to[state_at + i] = s[j];
  }
}

}  // namespace

void launch_causal_conv(Queue& queue,
                        const ConvParams& p,
                        std::uint32_t n_rows,
                        std::uint32_t most_new) {
  if (n_rows == 0) return;
  const std::uint32_t across = (p.n_channels + kThreads - 1) / kThreads;
  if (p.out.data && most_new > 0) {
    queue.launch(conv_kernel, dim3(across, (most_new + kTokensABlock - 1) / kTokensABlock, n_rows),
                 kThreads, 0, p);
  }
  queue.launch(tail_kernel, dim3(across, n_rows), kThreads, 0, p);
}

void launch_delta_gates(Queue& queue, const DeltaGatesParams& p) {
  const std::size_t n = std::size_t{p.a.n_rows} * p.a.n_cols;
  if (n == 0) return;
  queue.launch(delta_gates_kernel, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)),
               kThreads, 0, p);
}

void launch_gated_delta(Queue& queue, const GatedDeltaParams& p, std::uint32_t n_rows) {
  if (n_rows == 0) return;
  const auto kernel = p.key_dim <= 128   ? gated_delta_kernel<16>
                      : p.key_dim <= 256 ? gated_delta_kernel<32>
                                         : gated_delta_kernel<64>;
  queue.launch(kernel, dim3((p.value_dim + kRowsABlock - 1) / kRowsABlock, p.n_value_heads, n_rows),
               kThreads, 0, p);
}

}  // namespace kvasir::backend::cuda
