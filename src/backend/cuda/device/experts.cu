#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/experts.h"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kGroupThreads = 512, kColumns = 128;
constexpr std::uint32_t kFewSlots = 1024;  // places are found by the first block alone

// By the first warp: counts of experts become first places, and items are written.
__device__ void write_items(const GroupArgs& p,
                            const std::uint32_t* counts,
                            std::uint32_t* begins) {
  const unsigned lane = threadIdx.x;
  std::uint32_t places = 0, items = 0;  // of the experts before these 32
  for (std::uint32_t first = 0; first < p.n_experts; first += 32) {
    const std::uint32_t expert = first + lane;
    const std::uint32_t n = expert < p.n_experts ? counts[expert] : 0;
    const std::uint32_t n_items = (n + p.item_rows - 1) / p.item_rows;
    std::uint32_t place = n, item = n_items;  // sums up to and with this lane
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::uint32_t below = __shfl_up_sync(0xffffffffu, place, step);
      const std::uint32_t items_below = __shfl_up_sync(0xffffffffu, item, step);
      if (lane >= step) {
        place += below;
        item += items_below;
      }
    }
    if (expert < p.n_experts) {
      begins[expert] = places + place - n;
      p.begins[expert] = places + place - n;
    }
    for (std::uint32_t i = 0; i < n_items; ++i)
      p.items[items + item - n_items + i] = {expert, places + place - n + i * p.item_rows,
                                             min(p.item_rows, n - i * p.item_rows), 0};
    places += __shfl_sync(0xffffffffu, place, 31);
    items += __shfl_sync(0xffffffffu, item, 31);
  }
  for (std::uint32_t i = items + lane; i < p.n_items; i += 32) p.items[i] = {0, 0, 0, 0};
}

// One block. Counts are whole numbers: no order of additions shows in them.
__global__ void __launch_bounds__(kGroupThreads) group_kernel(const __grid_constant__ GroupArgs p) {
  begin_early();
  extern __shared__ std::uint32_t shared[];
  std::uint32_t* const counts = shared;
  std::uint32_t* const begins = counts + p.n_experts;
  std::uint32_t* const experts = begins + p.n_experts;  // few slots only
  const bool is_few = p.n_slots <= kFewSlots;
  for (std::uint32_t e = threadIdx.x; e < p.n_experts; e += kGroupThreads) counts[e] = 0;
  __syncthreads();
  for (std::uint32_t slot = threadIdx.x; slot < p.n_slots; slot += kGroupThreads) {
    const std::uint32_t expert = p.experts[slot];
    atomicAdd(&counts[expert], 1u);
    if (is_few) experts[slot] = expert;
  }
  __syncthreads();
  if (threadIdx.x < 32) write_items(p, counts, begins);
  if (!is_few) return;
  __syncthreads();
  for (std::uint32_t slot = threadIdx.x; slot < p.n_slots; slot += kGroupThreads) {
    std::uint32_t place = begins[experts[slot]];
    for (std::uint32_t before = 0; before < slot; ++before)
      place += experts[before] == experts[slot];
    p.slots[place] = slot;
    p.places[slot] = place;
  }
}

// Many slots: one warp an expert, its slots in ascending order.
__global__ void place_kernel(const __grid_constant__ GroupArgs p) {
  begin_early();
  const std::uint32_t expert = blockIdx.x;
  const unsigned lane = threadIdx.x;  // one warp
  std::uint32_t place = p.begins[expert];
  for (std::uint32_t first = 0; first < p.n_slots; first += 32) {
    const std::uint32_t slot = first + lane;
    const bool is_mine = slot < p.n_slots && p.experts[slot] == expert;
    const unsigned mine = __ballot_sync(0xffffffffu, is_mine);
    if (is_mine) {
      const std::uint32_t at = place + __popc(mine & ((1u << lane) - 1));
      p.slots[at] = slot;
      p.places[slot] = at;
    }
    place += __popc(mine);
  }
}

__global__ void sum_kernel(const __grid_constant__ SumExpertsArgs p) {
  begin_early();
  const std::uint32_t column = blockIdx.x * kColumns + threadIdx.x;
  if (column >= p.out.n_cols) return;
  float sum = 0.0f;
  for (std::uint32_t c = 0; c < p.top_k; ++c) {
    const std::size_t slot = std::size_t{blockIdx.y} * p.top_k + c;
    sum = __fadd_rn(
        sum, __fmul_rn(p.y[std::size_t{p.places[slot]} * p.out.n_cols + column], p.weights[slot]));
  }
  p.out.row(blockIdx.y)[column] = sum;
}

}  // namespace

void launch_group(Queue& queue, const GroupArgs& args) {
  const std::size_t few = args.n_slots <= kFewSlots ? args.n_slots : 0;
  queue.launch_early(&group_kernel, dim3(1), kGroupThreads,
                     (2 * std::size_t{args.n_experts} + few) * sizeof(std::uint32_t), args);
  if (few == 0) queue.launch_early(&place_kernel, dim3(args.n_experts), 32, 0, args);
}

void launch_sum_experts(Queue& queue, const SumExpertsArgs& args) {
  queue.launch_early(&sum_kernel,
                     dim3((args.out.n_cols + kColumns - 1) / kColumns, args.out.n_rows), kColumns,
                     0, args);
}

}  // namespace kvasir::backend::cuda
