// What a team makes of each op: matrices by columns, attention by heads, all else by everybody.
#include "backend/cuda/team/team_ops.h"

#include <algorithm>
#include <array>

#include "backend/cuda/detail/products.h"
#include "backend/cuda/team/for_member.h"

namespace kvasir::backend::cuda {
namespace team {  // a lone GPU's ops have these names one level up
namespace {

TeamDevice& begin_op(ops::Device& device) noexcept {
  TeamDevice& team = team_of(device);
  team.end_crossing();
  return team;
}

template <auto Op, class Args>
void run(TeamDevice& team, std::size_t member, const Args& args) {
  CudaDevice& device = team.enter(member);
  (device.ops().*Op)(device, args);
}

template <class Args>
Args of_member(TeamDevice& team, std::size_t member, Args args) {
  each(args, ForMember(team, member));
  return args;
}

// Every member does the same.
template <auto Op, class Args>
void by_everybody(ops::Device& device, const Args& args) noexcept {
  TeamDevice& team = begin_op(device);
  Args seen = args;
  each(seen, Settle(team));
  for (std::size_t m = 0; m < team.size(); ++m) run<Op>(team, m, of_member(team, m, args));
}

bool is_split(const ops::PackedMatrix* m) { return team_matrix(m).is_split; }

// A member's run of n columns.
MatView run_of(TeamDevice& team, std::size_t member, MatView m) {
  const std::uint32_t n = m.n_cols / static_cast<std::uint32_t>(team.size());
  MatView own = m.columns(static_cast<std::uint32_t>(member) * n, n);
  own.data = team.memory().at(m.data, member) + (own.data - m.data);
  return own;
}

// A bias of a split matrix, at the member's outputs.
const float* bias_of(TeamDevice& team,
                     std::size_t member,
                     const ops::PackedMatrix* weight,
                     const float* bias) {
  if (bias == nullptr) return nullptr;
  return team.memory().at(bias, member) + member * (weight->n_out() / team.size());
}

ConstMatView whole_of(TeamDevice& team, std::size_t member, ConstMatView m) {
  m.data = team.memory().at(m.data, member);
  return m;
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  if (!is_split(a.weight)) return by_everybody<&ops::OpTable::linear>(device, a);
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  team.settle(a.out);
  std::array<MatView, kMaxMembers> own;
  for (std::size_t m = 0; m < team.size(); ++m) {
    own[m] = run_of(team, m, a.out);
    run<&ops::OpTable::linear>(team, m,
                               ops::LinearArgs{.x = whole_of(team, m, a.x),
                                               .weight = team_matrix(a.weight).parts[m].get(),
                                               .bias = bias_of(team, m, a.weight, a.bias),
                                               .out = own[m]});
  }
  team.exchange(std::span(own).first(team.size()), 0, a.out);
}

std::vector<ops::LinearPart> parts_of_member(TeamDevice& team,
                                             std::size_t member,
                                             std::span<const ops::LinearPart> parts) {
  std::vector<ops::LinearPart> out;
  for (const ops::LinearPart& part : parts)
    out.push_back({team_matrix(part.weight).parts[member].get(),
                   bias_of(team, member, part.weight, part.bias)});
  return out;
}

bool are_split(std::span<const ops::LinearPart> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [](const ops::LinearPart& part) { return is_split(part.weight); });
}

// Members keep their columns to themselves until somebody needs them whole: attention does not.
void linear_group(ops::Device& device, const ops::LinearGroupArgs& a) noexcept {
  if (!are_split(a.parts) || a.parts.size() > kMaxRuns)
    return ops::linear_group_composed(device, a);
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  team.settle(a.out);
  SplitColumns split{.whole = a.out, .parts = {}, .of_member = {}};
  std::uint32_t column = 0;
  for (const ops::LinearPart& part : a.parts) {
    split.parts.push_back({column, part.weight->n_out()});
    column += part.weight->n_out();
  }
  for (std::size_t m = 0; m < team.size(); ++m) {
    const auto width = static_cast<std::uint32_t>(column / team.size());
    float* const own =
        team.enter(m).workspace<float>(kTeamColumns, std::size_t{a.x.n_rows} * width);
    split.of_member.push_back(mat_view(own, a.x.n_rows, width));
    const auto parts = parts_of_member(team, m, a.parts);
    run<&ops::OpTable::linear_group>(
        team, m,
        ops::LinearGroupArgs{
            .x = whole_of(team, m, a.x), .parts = parts, .out = split.of_member.back()});
  }
  team.leave_split(std::move(split));
}

// Gate and up of a member lie side by side in the last columns, where nobody's result belongs.
void gated_linear(ops::Device& device, const ops::GatedLinearArgs& a) noexcept {
  if (!are_split(a.parts) || a.parts.size() != 2) return ops::gated_linear_composed(device, a);
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  team.settle(a.gate_up);
  const std::uint32_t ff = a.gate_up.n_cols / 2;
  const auto width = 2 * ff / static_cast<std::uint32_t>(team.size());
  std::array<MatView, kMaxMembers> own;
  for (std::size_t m = 0; m < team.size(); ++m) {
    own[m] = a.gate_up.columns(2 * ff - width, width);
    own[m].data = team.memory().at(a.gate_up.data, m) + (2 * ff - width);
    const auto parts = parts_of_member(team, m, a.parts);
    run<&ops::OpTable::gated_linear>(team, m,
                                     ops::GatedLinearArgs{.x = whole_of(team, m, a.x),
                                                          .parts = parts,
                                                          .activation = a.activation,
                                                          .gate_up = own[m]});
  }
  team.exchange(std::span(own).first(team.size()), 0, a.gate_up.columns(0, ff));
}

bool has_split_heads(TeamDevice& team, const KvLayerView& kv) {
  const TeamMemory::Region* const region = team.memory().find(kv.k ? kv.k : kv.k_encoded.planes[0]);
  return region && region->is_split();
}

// A member's heads of a matrix, split or whole.
MatView heads_of(TeamDevice& team, std::size_t member, MatView m) {
  const auto own = team.own_columns(m, member);
  return own ? *own : run_of(team, member, m);
}
MatView heads_of(TeamDevice& team, std::size_t member, ConstMatView m) {
  return heads_of(team, member, MatView{const_cast<float*>(m.data), m.n_rows, m.n_cols, m.stride});
}

// Matrices that are not split just by these columns are made whole.
void settle_heads(TeamDevice& team, ConstMatView m) {
  if (!team.own_columns(m, 0)) team.settle(m);
}

void kv_append(ops::Device& device, const ops::KvAppendArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  if (!has_split_heads(team, a.kv)) return by_everybody<&ops::OpTable::kv_append>(device, a);
  settle_heads(team, a.k);
  settle_heads(team, a.v);
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::KvAppendArgs own = of_member(team, m, a);
    own.k = heads_of(team, m, a.k);
    own.v = heads_of(team, m, a.v);
    run<&ops::OpTable::kv_append>(team, m, own);
  }
}

// Of queries, keys and values that are split by heads, each member prepares its own; of whole ones
// everybody prepares all, so that they stay whole.
void query_key(ops::Device& device, const ops::QueryKeyArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  const bool has_head_norms = (a.q_norm == nullptr || a.q_group == a.head_dim) &&
                              (a.k_norm == nullptr || a.k_group == a.head_dim);
  if (!has_split_heads(team, a.kv) || !has_head_norms || !team.own_columns(a.q, 0) ||
      !team.own_columns(a.k, 0) || !team.own_columns(a.v, 0))
    return ops::query_key_composed(device, a);
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::QueryKeyArgs own = of_member(team, m, a);
    own.q = *team.own_columns(a.q, m);
    own.k = *team.own_columns(a.k, m);
    own.v = *team.own_columns(a.v, m);
    run<&ops::OpTable::query_key>(team, m, own);
  }
}

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  if (!has_split_heads(team, a.kv)) return by_everybody<&ops::OpTable::attention>(device, a);
  settle_heads(team, a.q);
  team.settle(a.out);
  const auto n_heads = static_cast<std::uint32_t>(a.n_heads / team.size());
  std::array<MatView, kMaxMembers> out;
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::AttentionArgs own = of_member(team, m, a);
    own.q = heads_of(team, m, a.q);
    own.n_heads = n_heads;
    if (own.sinks) own.sinks += m * n_heads;
    own.out = out[m] = run_of(team, m, a.out);
    run<&ops::OpTable::attention>(team, m, own);
  }
  team.exchange(std::span(out).first(team.size()), 0, a.out);
}

void recur(TeamDevice& team,
           std::size_t member,
           RecurrentLayerView& state,
           std::vector<RecurrentRowView>& rows) {
  rows.assign(state.rows.begin(), state.rows.end());
  const ForMember see(team, member);
  for (RecurrentRowView& row : rows)
    see(row.conv_from), see(row.conv_to), see(row.delta_from), see(row.delta_to);
  state.rows = rows;
}

void causal_conv(ops::Device& device, const ops::CausalConvArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  std::vector<RecurrentRowView> rows;
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::CausalConvArgs own = a;
    const ForMember see(team, m);
    see(own.x), see(own.weight), see(own.bias), see(own.out);
    recur(team, m, own.state, rows);
    run<&ops::OpTable::causal_conv>(team, m, own);
  }
}

void gated_delta(ops::Device& device, const ops::GatedDeltaArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  for (const ConstMatView m : {a.q, a.k, a.v, a.decay, a.beta}) team.settle(m);
  std::vector<RecurrentRowView> rows;
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::GatedDeltaArgs own = a;
    const ForMember see(team, m);
    see(own.q), see(own.k), see(own.v), see(own.decay), see(own.beta), see(own.out);
    recur(team, m, own.state, rows);
    run<&ops::OpTable::gated_delta>(team, m, own);
  }
}

void head_linear(ops::Device& device, const ops::HeadLinearArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::HeadLinearArgs own = a;
    const ForMember see(team, m);
    see(own.x), see(own.out);
    own.weights = team.list_of(a.weights, m);
    run<&ops::OpTable::head_linear>(team, m, own);
  }
}

void moe_experts(ops::Device& device, const ops::MoeExpertsArgs& a) noexcept {
  TeamDevice& team = begin_op(device);
  team.settle(a.x);
  for (std::size_t m = 0; m < team.size(); ++m) {
    ops::MoeExpertsArgs own = a;
    const ForMember see(team, m);
    see(own.x), see(own.experts), see(own.weights), see(own.scratch), see(own.out);
    own.bank = team.bank_of(a.bank, m);
    run<&ops::OpTable::moe_experts>(team, m, own);
  }
}

}  // namespace
}  // namespace team

using T = ops::OpTable;
using team::by_everybody;

const ops::OpTable kTeamOps{.embed = &by_everybody<&T::embed>,
                            .rms_norm = &by_everybody<&T::rms_norm>,
                            .layer_norm = &by_everybody<&T::layer_norm>,
                            .linear = &team::linear,
                            .rope = &by_everybody<&T::rope>,
                            .kv_append = &team::kv_append,
                            .kv_convert = &by_everybody<&T::kv_convert>,
                            .attention = &team::attention,
                            .act_mul = &by_everybody<&T::act_mul>,
                            .gate_rows = &by_everybody<&T::gate_rows>,
                            .add_scaled = &by_everybody<&T::add_scaled>,
                            .scale = &by_everybody<&T::scale>,
                            .gather_rows = &by_everybody<&T::gather_rows>,
                            .l2_norm = &by_everybody<&T::l2_norm>,
                            .causal_conv = &team::causal_conv,
                            .delta_gates = &by_everybody<&T::delta_gates>,
                            .gated_delta = &team::gated_delta,
                            .latent_append = &by_everybody<&T::latent_append>,
                            .latent_attention = &by_everybody<&T::latent_attention>,
                            .index_select = &by_everybody<&T::index_select>,
                            .head_linear = &team::head_linear,
                            .moe_route = &by_everybody<&T::moe_route>,
                            .moe_experts = &team::moe_experts,
                            .linear_group = &team::linear_group,
                            .gated_linear = &team::gated_linear,
                            .add_norm = &by_everybody<&T::add_norm>,
                            .query_key = &team::query_key,
                            .pick = &by_everybody<&T::pick>};

}  // namespace kvasir::backend::cuda
