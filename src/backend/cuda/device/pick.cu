// Picking tokens. The draw is ops/pick.cpp's to the bit: the same words, f32 and f64 operations one
// by one in the same order (no fma is made of them: -fmad=false), denormals flushed as the host
// flushes them.
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/pick.h"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / 32;
constexpr std::uint32_t kNoToken = 0xFFFFFFFFu;
constexpr float kLowest = -3.402823466e38f;

__device__ float flushed(float x) {
  float y;
  asm("add.ftz.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float below(float x, float top) {
  float y;
  asm("sub.ftz.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(top));
  return y;
}

__device__ PickPeak better(const PickPeak& a, const PickPeak& b) {
  const bool takes_b = b.max > a.max || (b.max == a.max && b.token < a.token);
  return {takes_b ? b.max : a.max, takes_b ? b.token : a.token, a.is_broken | b.is_broken, 0};
}
__device__ PickDraw better(const PickDraw& a, const PickDraw& b) {
  const bool takes_b = b.score > a.score || (b.score == a.score && b.token < a.token);
  return takes_b ? b : a;
}
__device__ PickPeak other(const PickPeak& a, int half) {
  return {__shfl_xor_sync(~0u, a.max, half), __shfl_xor_sync(~0u, a.token, half),
          __shfl_xor_sync(~0u, a.is_broken, half), 0};
}
__device__ PickDraw other(const PickDraw& a, int half) {
  return {__shfl_xor_sync(~0u, a.score, half), __shfl_xor_sync(~0u, a.token, half)};
}

template <class T>
__device__ T best_of_warp(T a) {
  for (int half = 16; half > 0; half /= 2) a = better(a, other(a, half));
  return a;
}
// In every thread.
template <class T>
__device__ T best_of_block(T a) {
  __shared__ T of_warp[kWarps];
  a = best_of_warp(a);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
  __syncthreads();
  T best = of_warp[0];
  for (unsigned w = 1; w < kWarps; ++w) best = better(best, of_warp[w]);
  return best;
}

// Of a whole row, in every lane.
__device__ PickPeak peak_of_row(const PickScoresArgs& p, std::uint32_t row) {
  PickPeak best{kLowest, kNoToken, 0, 0};
  for (std::uint32_t c = threadIdx.x % 32; c < p.n_chunks; c += 32)
    best = better(best, p.peaks[std::size_t{row} * p.n_chunks + c]);
  return best_of_warp(best);
}

__global__ void __launch_bounds__(kThreads) peaks_kernel(const __grid_constant__ PickScoresArgs p) {
  begin_early();
  const std::uint32_t row = blockIdx.y;
  if (p.rows[row].kind == PickKind::none) return;
  const float* const x = p.scores.row(row);
  const std::uint32_t first = blockIdx.x * kPickChunk + threadIdx.x;
  PickPeak best{kLowest, kNoToken, 0, 0};
  float value[kPickChunk / kThreads];
#pragma unroll
  for (unsigned j = 0; j < kPickChunk / kThreads; ++j) {
    const std::uint32_t i = first + j * kThreads;
    value[j] = i < p.scores.n_cols ? x[i] : kLowest;
  }
#pragma unroll
  for (unsigned j = 0; j < kPickChunk / kThreads; ++j) {
    const std::uint32_t i = first + j * kThreads;
    best.is_broken |= (__float_as_uint(value[j]) & 0x7f800000u) == 0x7f800000u;
    const float v = flushed(value[j]);
    const bool takes = i < p.scores.n_cols && (v > best.max || best.token == kNoToken);
    best.max = takes ? v : best.max;
    best.token = takes ? i : best.token;
  }
  best = best_of_block(best);
  if (threadIdx.x == 0) p.peaks[std::size_t{row} * p.n_chunks + blockIdx.x] = best;
}

struct Words {
  std::uint32_t w[4];
};
// base/philox.h
__device__ Words words_of(const PickRow& row, std::uint32_t lane) {
  std::uint32_t c0 = static_cast<std::uint32_t>(row.position),
                c1 = static_cast<std::uint32_t>(row.position >> 32), c2 = lane, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(row.seed),
                k1 = static_cast<std::uint32_t>(row.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// ops::gumbel: its log_of twice.
__device__ double log_of(double x) {
  constexpr long long kSqrtHalf = 0x3FE6A09E667F3BCDll;
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const long long bits = __double_as_longlong(x);
  const long long exponent = (bits - kSqrtHalf) >> 52;
  const double m = __longlong_as_double(bits - (exponent << 52));
  const double e = static_cast<double>(exponent);
  const double s = __ddiv_rn(__dsub_rn(m, 1.0), __dadd_rn(m, 1.0));
  const double z = __dmul_rn(s, s);
  double p = 1.0 / 21;
  constexpr double kTerms[] = {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                               1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
#pragma unroll
  for (int i = 0; i < 9; ++i) p = __dadd_rn(__dmul_rn(p, z), kTerms[i]);
  const double twice = __dadd_rn(s, s);
  const double small = __dadd_rn(__dmul_rn(__dmul_rn(twice, z), p), __dmul_rn(e, kLn2Low));
  return __dadd_rn(__dmul_rn(e, kLn2High), __dadd_rn(twice, small));
}
__device__ double gumbel_of(std::uint32_t word) {
  const double half = __dmul_rn(__dadd_rn(static_cast<double>(word), 0.5), 0x1p-32);
  const double v = half < 1.0 - 0x1p-24 ? half : 1.0 - 0x1p-24;
  return -log_of(-log_of(__dsub_rn(1.0, v)));
}
__device__ double score_of(float x, float top, float scale, std::uint32_t word) {
  return __dadd_rn(__dmul_rn(static_cast<double>(below(x, top)), static_cast<double>(scale)),
                   gumbel_of(word));
}

// No less than the Gumbel number of the word, as ops/pick.cpp's gumbel_bound.
__device__ float gumbel_bound(std::uint32_t word) {
  constexpr float kLn2 = 0x1.62e43p-1f, kSlack = 1e-3f;
  const float half = static_cast<float>(static_cast<int>(word >> 1)) + 0.25f;
  const float log2_half = static_cast<float>(__float_as_int(half)) * 0x1p-23f - 127.0f;
  return (31.0f - log2_half) * kLn2 + kSlack;
}
constexpr float kGumbelMax = 22.9f;

// Logarithms are taken only of tokens whose bound reaches the best score so far, the row's top
// token's to begin with.
__global__ void __launch_bounds__(kThreads) draws_kernel(const __grid_constant__ PickScoresArgs p) {
  begin_early();
  const std::uint32_t row = blockIdx.y;
  const PickRow spec = p.rows[row];
  if (spec.kind != PickKind::drawn) return;
  const PickPeak top = peak_of_row(p, row);
  if (top.is_broken) return;
  const float* const x = p.scores.row(row);
  PickDraw best{
      score_of(top.max, top.max, spec.scale, words_of(spec, top.token / 4).w[top.token % 4]),
      top.token};
  for (unsigned j = 0; j < kPickChunk / 4 / kThreads; ++j) {
    const std::uint32_t lane = blockIdx.x * (kPickChunk / 4) + j * kThreads + threadIdx.x;
    float value[4], scaled[4];
    bool is_hopeful = false;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t i = 4 * lane + k;
      const bool is_there = i < p.scores.n_cols;
      value[k] = is_there ? x[i] : top.max;
      scaled[k] = is_there ? (value[k] - top.max) * spec.scale : -INFINITY;
      is_hopeful |= scaled[k] >= static_cast<float>(best.score) - kGumbelMax;
    }
    if (!is_hopeful) continue;
    const Words words = words_of(spec, lane);
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      if (!(scaled[k] + gumbel_bound(words.w[k]) >= static_cast<float>(best.score))) continue;
      best = better(best, {score_of(value[k], top.max, spec.scale, words.w[k]), 4 * lane + k});
    }
  }
  best = best_of_block(best);
  if (threadIdx.x == 0) p.draws[std::size_t{row} * p.n_chunks + blockIdx.x] = best;
}

__global__ void __launch_bounds__(32) ends_kernel(const __grid_constant__ PickScoresArgs p) {
  begin_early();
  const std::uint32_t row = blockIdx.x;
  const PickKind kind = p.rows[row].kind;
  std::uint32_t token = kNoToken;
  if (kind != PickKind::none) {
    const PickPeak top = peak_of_row(p, row);
    token = top.is_broken ? kNoToken : top.token;
    if (kind == PickKind::drawn && !top.is_broken) {
      const PickDraw* const draws = p.draws + std::size_t{row} * p.n_chunks;
      PickDraw best = draws[threadIdx.x % p.n_chunks];
      for (std::uint32_t c = threadIdx.x; c < p.n_chunks; c += 32) best = better(best, draws[c]);
      token = static_cast<std::uint32_t>(best_of_warp(best).token);
    }
  }
  if (threadIdx.x == 0) p.picked[row] = token;
}

}  // namespace

void launch_pick(Queue& queue, const PickScoresArgs& args) {
  const dim3 grid(args.n_chunks, args.scores.n_rows);
  queue.launch_early(&peaks_kernel, grid, kThreads, 0, args);
  if (args.draws) queue.launch_early(&draws_kernel, grid, kThreads, 0, args);
  queue.launch_early(&ends_kernel, dim3(args.scores.n_rows), 32, 0, args);
}

}  // namespace kvasir::backend::cuda
