#include "ops/block_attention.h"

#include <algorithm>
#include <array>

#include "ops/op_table.h"

namespace kvasir::ops {
namespace {

constexpr std::uint32_t kQueriesTogether = 64;

// Queries [begin, end) of a row: each is a row of its own whose one new position is the block's
// last, so that attention's causal rule shows it everything.
void attend(Device& device,
            const BlockAttentionArgs& a,
            const KvRowView& row,
            std::uint32_t begin,
            std::uint32_t end) noexcept {
  std::array<KvRowView, kQueriesTogether> queries;
  for (std::uint32_t i = begin; i < end; ++i) {
    KvRowView& query = queries[i - begin] = row;
    query.length = row.length + row.n_new - 1;
    query.n_new = 1;
    query.first_token = row.first_token + i;
  }
  AttentionArgs attention{.q = a.q,
                          .kv = a.kv,
                          .n_heads = a.n_heads,
                          .scale = a.scale,
                          .softcap = a.softcap,
                          .sinks = a.sinks,
                          .out = a.out};
  attention.kv.rows = {queries.data(), end - begin};
  if (a.kv.window > 0) attention.kv.window = a.kv.window + row.n_new;
  device.ops().attention(device, attention);
}

}  // namespace

Status check_block_read(const KvLayerView& kv) {
  const bool is_empty = std::any_of(kv.rows.begin(), kv.rows.end(),
                                    [](const KvRowView& row) { return row.length == 0; });
  if (is_empty) return invalid("cache is empty");
  return {};
}

void block_attention(Device& device, const BlockAttentionArgs& a) noexcept {
  device.ops().kv_append(device, {.k = a.k, .v = a.v, .kv = a.kv});
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t begin = 0; begin < row.n_new; begin += kQueriesTogether)
      attend(device, a, row, begin, std::min(row.n_new, begin + kQueriesTogether));
  }
}

}  // namespace kvasir::ops
