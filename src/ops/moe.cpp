#include "ops/moe.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/op_table.h"

namespace kvasir::ops {
namespace {

// Slots (token · top_k + choice) of each expert: counting sort, so tokens stay in order within an
// expert.
struct Grouping {
  std::vector<std::uint32_t> begin;  // [n_experts + 1]
  std::vector<std::uint32_t> slots;  // grouped by expert
};

Grouping group_by_expert(std::span<const std::uint32_t> experts, std::size_t n_experts) {
  Grouping g;
  g.begin.assign(n_experts + 1, 0);
  for (const auto e : experts) ++g.begin[e + 1];
  for (std::size_t e = 0; e < n_experts; ++e) g.begin[e + 1] += g.begin[e];
  std::vector<std::uint32_t> next(g.begin.begin(), g.begin.end() - 1);
  g.slots.resize(experts.size());
  for (std::uint32_t slot = 0; slot < experts.size(); ++slot) g.slots[next[experts[slot]]++] = slot;
  return g;
}

// out = Σ weight · y, ascending expert id (the order of a token's slots), each product rounded
// before the sum.
void add_up(const MoeExpertsArgs& a, ConstMatView y, std::span<const std::uint32_t> place_of_slot) {
  for (std::uint32_t t = 0; t < a.x.n_rows; ++t) {
    float* out = a.out.row(t);
    std::fill(out, out + a.out.n_cols, 0.0f);
    for (std::uint32_t c = 0; c < a.top_k; ++c) {
      const std::size_t slot = std::size_t{t} * a.top_k + c;
      const float* row = y.row(place_of_slot[slot]);
      for (std::uint32_t i = 0; i < a.out.n_cols; ++i) out[i] += row[i] * a.weights[slot];
    }
  }
}

}  // namespace

void moe_experts_composed(Device& device, const MoeExpertsArgs& a) noexcept {
  const OpTable& ops = device.ops();
  const std::uint32_t n_tokens = a.x.n_rows, hidden = a.x.n_cols, ff = a.bank[0].gate->n_out();
  KVASIR_CHECK(a.scratch.size() >= moe_scratch_floats(n_tokens, a.top_k, hidden, ff))
      << "moe scratch";
  const Grouping grouping = group_by_expert(a.experts, a.bank.size());
  float* gathered = a.scratch.data();
  float* y = gathered + std::size_t{n_tokens} * hidden;
  float* gate = y + std::size_t{n_tokens} * a.top_k * hidden;
  float* up = gate + std::size_t{n_tokens} * ff;

  std::vector<std::uint32_t> rows, place_of_slot(grouping.slots.size());
  for (std::size_t e = 0; e < a.bank.size(); ++e) {
    const std::uint32_t begin = grouping.begin[e], n = grouping.begin[e + 1] - begin;
    if (n == 0) continue;
    rows.clear();
    for (std::uint32_t i = begin; i < begin + n; ++i) {
      rows.push_back(grouping.slots[i] / a.top_k);
      place_of_slot[grouping.slots[i]] = i;
    }
    const ExpertWeights& w = a.bank[e];
    const MatView x_e = mat_view(gathered, n, hidden), gate_e = mat_view(gate, n, ff),
                  up_e = mat_view(up, n, ff);
    ops.gather_rows(device, {.x = a.x, .rows = rows, .out = x_e});
    ops.linear(device, {.x = x_e, .weight = w.gate, .bias = w.gate_bias, .out = gate_e});
    ops.linear(device, {.x = x_e, .weight = w.up, .bias = w.up_bias, .out = up_e});
    ops.act_mul(
        device,
        {.gate = gate_e, .up = up_e, .activation = a.activation, .limit = a.limit, .out = gate_e});
    ops.linear(device, {.x = gate_e,
                        .weight = w.down,
                        .bias = w.down_bias,
                        .out = mat_view(y + std::size_t{begin} * hidden, n, hidden)});
  }
  add_up(a, mat_view(y, n_tokens * a.top_k, hidden), place_of_slot);
}

}  // namespace kvasir::ops
