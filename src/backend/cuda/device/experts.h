// Grouping a step's (token, choice) slots by expert, in device memory, and adding their outputs up.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

struct GroupArgs {
  const std::uint32_t* experts;  // [n_slots]: of slot token · top_k + choice
  std::uint32_t n_slots, n_experts;
  std::uint32_t item_rows;  // the most rows of an item
  std::uint32_t n_items;    // room: at least items_bound(…)
  std::uint32_t* slots;     // out [n_slots]: the slot at each place; by expert, ascending slots
  std::uint32_t* places;    // out [n_slots]: the inverse
  std::uint32_t* begins;    // [n_experts + 1]: each expert's first place
  ExpertItem* items;        // out [n_items]; past the last: no rows
};
void launch_group(Queue& queue, const GroupArgs& args);

// How many items any choice of experts can need.
constexpr std::uint32_t items_bound(std::uint32_t n_slots,
                                    std::uint32_t n_experts,
                                    std::uint32_t item_rows) {
  const std::uint32_t used = n_slots < n_experts ? n_slots : n_experts;
  return (n_slots + (item_rows - 1) * used) / item_rows;
}

struct SumExpertsArgs {  // out[t] = Σ_c y[places[t · top_k + c]] · weights[t · top_k + c]
  const float* y;        // [n_slots, out.n_cols]
  const std::uint32_t* places;
  const float* weights;
  std::uint32_t top_k, pad;
  Mat out;
};
void launch_sum_experts(Queue& queue, const SumExpertsArgs& args);

}  // namespace kvasir::backend::cuda
