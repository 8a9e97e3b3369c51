// Attention: which kernels serve a step's rows, and how many blocks share a row's segments.
#include "backend/cuda/device/attention.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/detail/attention_parts.h"
#include "backend/cuda/detail/products.h"
#include "backend/cuda/detail/query_key.h"
#include "ops/fused.h"

namespace kvasir::backend::cuda {
namespace {

AttentionParams params_of(const ops::AttentionArgs& a,
                          bool is_encoded,
                          const KvRow* rows) noexcept {
  const bool has_softcap = a.softcap > 0.0f;
  return {.q = mat_of(a.q),
          .out = mat_of(a.out),
          .k = side_of(a.kv.k_side(is_encoded)),
          .v = side_of(a.kv.v_side(is_encoded)),
          .rows = rows,
          .sinks = a.sinks,
          .part_out = nullptr,
          .part_ml = nullptr,
          .arrivals = nullptr,
          .n_heads = a.n_heads,
          .n_kv_heads = a.kv.n_kv_heads,
          .dim = a.kv.head_dim,
          .block_tokens = a.kv.block_tokens,
          .block_shift = static_cast<std::uint32_t>(std::countr_zero(a.kv.block_tokens)),
          .window = a.kv.window,
          .max_segments = 0,
          .has_softcap = has_softcap ? 1u : 0u,
          .is_encoded = is_encoded ? 1u : 0u,
          .both_ways = a.both_ways ? 1u : 0u,
          .rounds = a.kv.type == DType::bf16 ? 1u : 0u,
          .in_scale = has_softcap ? a.scale / a.softcap : 1.0f,
          .out_scale = (has_softcap ? a.softcap : a.scale) * kLog2OfE,
          .part_tokens = 0,
          .most_keys = 0,
          .is_few = 0,
          .copy = {}};
}

// Rows of many tokens alone, all in one form: their outputs are rounded where they are made.
void attend_on_hopper(CudaDevice& cuda,
                      AttentionParams& p,
                      const AttentionGrid& grid,
                      const ops::AttentionArgs& a,
                      bool serves_all) noexcept {
  Products& products = cuda.products();
  if (serves_all && a.out.n_rows > kManyRows)
    p.copy = products.copy_of_next(a.out.n_rows, a.out.n_cols, Products::CopyOf::other);
  launch_attend_on_hopper(cuda.queue(), p, grid);
  if (serves_all) products.keep_copy(a.out, p.copy);
}

// Segments that a query of a row of up to `longest` positions meets.
std::uint32_t segments_of(const ops::AttentionArgs& a, std::uint32_t longest) noexcept {
  const std::uint32_t all = (longest + kSegment - 1) / kSegment;
  if (a.kv.window == 0 || a.both_ways) return bucket_of(all);
  return bucket_of(std::min(all, (a.kv.window + kFewTokens) / kSegment + 2));
}

constexpr std::uint32_t kMergedByLast = 32;  // segments of a row; of more a kernel makes outputs

// Rows of few new tokens on tensor cores: a block walks all segments of its pairs, or some of them.
void attend_few(CudaDevice& cuda, AttentionParams& p, const AttentionGrid& whole) noexcept {
  const FewBlocks blocks = few_blocks_of(p);
  const std::uint32_t n_groups =
      p.n_kv_heads *
      ((whole.most_new * (p.n_heads / p.n_kv_heads) + blocks.pairs - 1) / blocks.pairs);
  const Places places{
      .a_row = n_groups,
      .places = static_cast<std::uint32_t>(cuda.n_multiprocessors()) * blocks.a_multiprocessor};
  AttentionGrid grid = whole;
  grid.n_splits = splits_of(places.places, places.a_row * grid.n_rows, p.max_segments);
  grid.is_wide = grid.n_splits * places.a_row * grid.n_rows <=
                 static_cast<std::uint32_t>(cuda.n_multiprocessors());
  if (grid.n_splits == 1) {
    launch_attend_few(cuda.queue(), p, grid);
    return;
  }
  if (p.max_segments <= kMergedByLast)
    p.arrivals = cuda.workspace<std::uint32_t>(kArrivals, std::size_t{grid.n_rows} * n_groups);
  attend_in_parts(cuda, p, grid, places,
                  [&](const AttentionGrid& g) { launch_attend_few(cuda.queue(), p, g); });
}

}  // namespace

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  const NewTokens most = count_new(a.kv.rows);
  if (most.few + most.many == 0) return;
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.q.n_rows);
  for (const bool is_encoded : {false, true}) {
    if (is_encoded ? !rows.any_encoded : rows.all_encoded) continue;
    AttentionParams p = params_of(a, is_encoded, rows.view.rows);
    AttentionGrid grid{.n_rows = rows.n_rows, .most_new = most.many, .n_splits = 1};
    const bool serves_all =
        most.few == 0 && rows.any_encoded == rows.all_encoded && p.v.kind != KvKind::turbo_values;
    if (most.many > 0) {
      !serves_tensor_cores(p) ? launch_attend_plain(cuda.queue(), p, grid)
      : serves_hopper(p)      ? attend_on_hopper(cuda, p, grid, a, serves_all)
                              : launch_attend_many(cuda.queue(), p, grid);
    }
    if (most.few > 0) {
      p.max_segments = segments_of(a, rows.longest);
      grid.most_new = most.few;
      AttentionParams few = p;
      few.is_few = 1;
      if (serves_tensor_cores(few)) {
        attend_few(cuda, few, grid);
      } else {
        attend_in_parts(cuda, few, grid,
                        {.a_row = a.n_heads,
                         .places = 2 * static_cast<std::uint32_t>(cuda.n_multiprocessors())},
                        [&](const AttentionGrid& g) { launch_attend_plain(cuda.queue(), few, g); });
      }
    }
    if (p.v.kind == KvKind::turbo_values) {
      grid.most_new = std::max(most.few, most.many);
      launch_unrotate(cuda.queue(), p, grid);
    }
  }
}

// Rows of one new token each, few enough for the GPU to hold their blocks at once: one kernel,
// which also makes what query_key makes and rounds outputs for the product that follows.
void prepared_attention(ops::Device& device, const ops::PreparedAttentionArgs& a) noexcept {
  const ops::AttentionArgs& attend = a.attend;
  const auto is_one = [](const KvRowView& row) { return row.n_new == 1 && !row.is_encoded; };
  const auto& all = attend.kv.rows;
  if (all.empty() || !std::all_of(all.begin(), all.end(), is_one) || !is_plain(a.prepare))
    return ops::prepared_attention_composed(device, a);
  CudaDevice& cuda = cuda_of(device);
  const QueryKeyParams prepare = query_key_params(cuda, a.prepare);
  const auto rows = cuda.rows_of(all, attend.kv.block_tokens, attend.q.n_rows);
  AttentionParams p = params_of(attend, false, rows.view.rows);
  p.max_segments = segments_of(attend, rows.longest);
  const std::uint32_t n_splits = fresh_splits_of(
      p, prepare, rows.n_rows, static_cast<std::uint32_t>(cuda.n_multiprocessors()));
  if (n_splits == 0) return ops::prepared_attention_composed(device, a);
  Products& products = cuda.products();
  p.copy = products.copy_of_next(attend.out.n_rows, attend.out.n_cols, Products::CopyOf::other);
  launch_attend_fresh(cuda.queue(), p, prepare,
                      {.n_rows = rows.n_rows, .most_new = 1, .n_splits = n_splits});
  products.keep_copy(attend.out, p.copy);
}

}  // namespace kvasir::backend::cuda
