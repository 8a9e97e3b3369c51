#include "backend/cuda/device/exchange.h"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kPatienceNs = 30'000'000'000;

__device__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ std::uint64_t now_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

// Returns when this block of every member has come to its `count`th meeting, with all that was
// written before it. One that never comes has failed: then so does this one.
__device__ void meet(const ExchangeArgs& p, std::uint32_t count) {
  __threadfence_system();
  __syncthreads();
  const unsigned other = threadIdx.x;
  if (other < p.n_members && other != p.self) {
    const std::uint32_t slot = blockIdx.x * kMaxMembers;
    store_release(p.flags[other] + slot + p.self, count);
    const std::uint64_t begin = now_ns();
    while (static_cast<std::int32_t>(load_acquire(p.flags[p.self] + slot + other) - count) < 0)
      if (now_ns() - begin > kPatienceNs) __trap();
  }
  __syncthreads();
}

// Pieces of `Piece` (four floats, or one).
template <class Piece>
__device__ void push(const ExchangeArgs& p) {
  constexpr std::uint32_t kWidth = sizeof(Piece) / sizeof(float);
  for (std::uint32_t r = 0; r < p.n_runs; ++r) {
    const ColumnRun run = p.runs[r];
    const float* const from = p.own + run.from;
    const bool is_there = from == p.matrices[p.self] + run.to && p.own_stride == p.stride;
    const std::uint32_t n_pieces = run.count / kWidth;
    const std::size_t n = std::size_t{n_pieces} * p.n_rows;
    for (std::size_t i = blockIdx.x * kThreads + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * kThreads) {
      const std::size_t row = i / n_pieces, column = i % n_pieces * kWidth;
      const Piece piece = *reinterpret_cast<const Piece*>(from + row * p.own_stride + column);
      for (std::uint32_t m = 0; m < p.n_members; ++m) {
        if (m == p.self && is_there) continue;
        *reinterpret_cast<Piece*>(p.matrices[m] + row * p.stride + run.to + column) = piece;
      }
    }
  }
}

// The first meeting: nobody still reads what is about to be overwritten. The second: all is there.
__global__ void exchange_kernel(const __grid_constant__ ExchangeArgs p) {
  std::uint32_t* const counted = p.flags[p.self] + kExchangeBlocks * kMaxMembers + blockIdx.x;
  const std::uint32_t count = *counted;
  meet(p, count + 1);
  bool is_aligned = p.stride % 4 == 0 && p.own_stride % 4 == 0 &&
                    reinterpret_cast<std::uintptr_t>(p.own) % 16 == 0;
  for (std::uint32_t m = 0; m < p.n_members; ++m)
    is_aligned &= reinterpret_cast<std::uintptr_t>(p.matrices[m]) % 16 == 0;
  for (std::uint32_t r = 0; r < p.n_runs; ++r)
    is_aligned &= (p.runs[r].from | p.runs[r].to | p.runs[r].count) % 4 == 0;
  is_aligned ? push<float4>(p) : push<float>(p);
  meet(p, count + 2);
  if (threadIdx.x == 0) *counted = count + 2;
}

}  // namespace

void launch_exchange(Queue& queue, const ExchangeArgs& args) {
  std::size_t n = 0;
  for (std::uint32_t r = 0; r < args.n_runs; ++r) n += args.runs[r].count;
  const std::size_t n_blocks = (n * args.n_rows / 4 + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(n_blocks < 1                 ? 1
                                          : n_blocks > kExchangeBlocks ? kExchangeBlocks
                                                                       : n_blocks);
  queue.launch(exchange_kernel, dim3(grid), kThreads, 0, args);
}

}  // namespace kvasir::backend::cuda
