// Latent layers on attention's kernel: one key head whose values are its keys, and of the output
// the first `rank` columns. Selected positions are a block table of blocks of one token. Threads
// take (row, some queries, some heads); of index_select (query, some tiles).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

static_assert(sizeof(BlockId) == sizeof(std::uint32_t));

constexpr std::uint32_t kPairsTogether = 3;  // (query, head) pairs that the kernel scores at once

std::uint32_t divide_up(std::uint32_t n, std::uint32_t by) noexcept { return (n + by - 1) / by; }

void append_token(const CpuDevice& cpu,
                  const ops::LatentAppendArgs& a,
                  const KvRowView& row,
                  std::uint32_t i) noexcept {
  const std::size_t element = size_of(a.kv.type), slot = a.kv.slot(row, row.length + i),
                    token = row.first_token + i;
  const auto store = [&](const float* from, std::size_t n, std::byte* to) {
    if (a.kv.type == DType::f32) {
      std::memcpy(to, from, n * sizeof(float));
    } else {
      cpu.kernels().store_bf16(from, n, reinterpret_cast<std::uint16_t*>(to));
    }
  };
  std::byte* const to = a.kv.latent + slot * a.kv.dim() * element;
  store(a.latent.row(token), a.kv.rank, to);
  store(a.rope_key.row(token), a.kv.rope_dim, to + a.kv.rank * element);
  if (a.index_key.n_cols > 0)
    store(a.index_key.row(token), a.kv.index_dim, a.kv.index + slot * a.kv.index_dim * element);
}

// Queries and heads that walk the keys together.
struct Group {
  std::uint32_t n_queries, n_heads;
};
Group group_of(const CpuDevice& cpu, const ops::LatentAttentionArgs& a) noexcept {
  const auto n_threads = static_cast<std::uint32_t>(cpu.n_threads());
  if (a.n_heads <= kChunkQueries && a.q_latent.n_rows >= n_threads)
    return {a.selected.empty() ? kChunkQueries / a.n_heads : 1, a.n_heads};
  // Few queries or many heads: share the heads out.
  const std::uint32_t share =
      divide_up(a.n_heads, divide_up(n_threads, std::max(a.q_latent.n_rows, 1u)));
  return {1, std::min(divide_up(share, kPairsTogether) * kPairsTogether, kChunkQueries)};
}

// Items: kv_head is the group of heads.
void list_items(const ops::LatentAttentionArgs& a, Group group, std::vector<AttentionItem>& items) {
  items.clear();
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t end = row.n_new; end > 0;) {  // as in attention: long items first
      const std::uint32_t begin = (end - 1) / group.n_queries * group.n_queries;
      for (std::uint32_t g = 0; g < divide_up(a.n_heads, group.n_heads); ++g) {
        AttentionItem item{};
        item.blocks = reinterpret_cast<const std::uint32_t*>(row.blocks);
        item.position = row.length + begin;
        item.n_queries = end - begin;
        item.token = row.first_token + begin;
        item.kv_head = g;
        items.push_back(item);
      }
      end = begin;
    }
  }
}

// One head of a query as attention wants it: the latent part, then the roped one.
void join_query(const ops::LatentAttentionArgs& a,
                std::size_t token,
                std::size_t head,
                float* q) noexcept {
  std::memcpy(q, a.q_latent.row(token) + head * a.kv.rank, a.kv.rank * sizeof(float));
  std::memcpy(q + a.kv.rank, a.q_rope.row(token) + head * a.rope_step,
              a.kv.rope_dim * sizeof(float));
}

void attend(
    CpuDevice& cpu, const ops::LatentAttentionArgs& a, Group group, AttentionItem item, int part) {
  const std::uint32_t dim = a.kv.dim(), first_head = item.kv_head * group.n_heads,
                      n_heads = std::min(group.n_heads, a.n_heads - first_head);
  const std::size_t n_pairs = std::size_t{item.n_queries} * n_heads, token = item.token;
  AttentionJob job{};
  job.k = job.v = reinterpret_cast<const std::uint8_t*>(a.kv.latent);
  job.is_f32 = a.kv.type == DType::f32;
  job.n_kv_heads = 1;
  job.head_dim = dim;
  job.block_tokens = a.kv.block_tokens;
  job.queries_per_kv = n_heads;
  job.scale = a.scale;
  const std::size_t n_scratch = attention_scratch_floats(dim, n_pairs), n_floats = n_pairs * dim;
  float* const scratch = cpu.thread_scratch(part, n_scratch + 2 * n_floats + a.top_k);
  float* const q = scratch + n_scratch;
  for (std::size_t pair = 0; pair < n_pairs; ++pair)
    join_query(a, token + pair / n_heads, first_head + pair % n_heads, q + pair * dim);
  job.q = q, job.out = q + n_floats;
  job.q_stride = job.out_stride = std::size_t{n_heads} * dim;
  item.token = item.kv_head = 0;
  if (!a.selected.empty()) {
    const std::uint32_t n = ops::n_selected(item.position, a.top_k);
    auto* const slots = reinterpret_cast<std::uint32_t*>(job.out + n_floats);
    for (std::uint32_t j = 0; j < n; ++j) {
      const std::uint32_t position = a.selected[token * a.top_k + j];
      slots[j] =
          item.blocks[position / job.block_tokens] * job.block_tokens + position % job.block_tokens;
    }
    item.blocks = slots, item.position = n - 1, job.block_tokens = 1;
  }
  cpu.kernels().attention(job, item, scratch);
  for (std::size_t pair = 0; pair < n_pairs; ++pair) {
    std::memcpy(a.out.row(token + pair / n_heads) + (first_head + pair % n_heads) * a.kv.rank,
                job.out + pair * dim, a.kv.rank * sizeof(float));
  }
}

// The best top_k of `scores`, all of which are spoiled: positions ascending. Ties go to the lower
// position, NaNs come last.
void choose(
    float* scores, std::uint32_t n, std::uint32_t top_k, float* sorted, std::uint32_t* out) {
  for (std::uint32_t i = 0; i < n; ++i) {
    if (std::isnan(scores[i])) scores[i] = -std::numeric_limits<float>::infinity();
  }
  std::copy(scores, scores + n, sorted);
  std::nth_element(sorted, sorted + (top_k - 1), sorted + n, std::greater<>{});
  const float last = sorted[top_k - 1];
  auto ties = top_k - static_cast<std::uint32_t>(
                          std::count_if(scores, scores + n, [&](float s) { return s > last; }));
  for (std::uint32_t i = 0; i < n; ++i) {
    const bool is_tie = scores[i] == last && ties > 0;
    if (is_tie) --ties;
    if (is_tie || scores[i] > last) *out++ = i;
  }
}

struct IndexQuery {
  const KvRowView* row;
  std::uint32_t token, n_keys;
  std::size_t scores;  // where they begin
};

// Scores of all queries in pieces of some tiles, then the choices.
void select_some(CpuDevice& cpu,
                 const ops::IndexSelectArgs& a,
                 const std::vector<IndexQuery>& queries,
                 std::size_t n_scores) {
  if (queries.empty()) return;
  constexpr std::uint32_t kPiece = 16 * kTileKeys;
  float* const scores = cpu.sums().floats(n_scores);
  const IndexJob job{.keys = reinterpret_cast<const std::uint8_t*>(a.kv.index),
                     .is_f32 = a.kv.type == DType::f32,
                     .n_heads = a.n_heads,
                     .dim = a.kv.index_dim,
                     .block_tokens = a.kv.block_tokens};
  struct Piece {
    const IndexQuery* query;
    std::uint32_t begin;
  };
  std::vector<Piece> pieces;
  for (const IndexQuery& query : queries) {
    for (std::uint32_t begin = 0; begin < query.n_keys; begin += kPiece)
      pieces.push_back({&query, begin});
  }
  cpu.deal(pieces.size(), [&](std::size_t i, int part) {
    const IndexQuery& query = *pieces[i].query;
    const std::uint32_t begin = pieces[i].begin;
    cpu.kernels().index_scores(
        job,
        {.q = a.q.row(query.token),
         .weights = a.weights.row(query.token),
         .blocks = reinterpret_cast<const std::uint32_t*>(query.row->blocks),
         .begin = begin,
         .end = std::min(begin + kPiece, query.n_keys),
         .scores = scores + query.scores + begin},
        cpu.thread_scratch(part, attention_scratch_floats(a.kv.index_dim, a.n_heads)));
  });
  cpu.deal(queries.size(), [&](std::size_t i, int part) {
    const IndexQuery& query = queries[i];
    choose(scores + query.scores, query.n_keys, a.top_k, cpu.thread_scratch(part, query.n_keys),
           &a.selected[std::size_t{query.token} * a.top_k]);
  });
}

}  // namespace

void latent_append(ops::Device& device, const ops::LatentAppendArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  for (const KvRowView& row : a.kv.rows) {
    cpu.split(row.n_new, std::size_t{row.n_new} * a.kv.dim(),
              [&](std::size_t begin, std::size_t end, int) {
                for (std::size_t i = begin; i < end; ++i)
                  append_token(cpu, a, row, static_cast<std::uint32_t>(i));
              });
  }
}

void latent_attention(ops::Device& device, const ops::LatentAttentionArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const Group group = group_of(cpu, a);
  list_items(a, group, cpu.items());
  cpu.deal(cpu.items().size(),
           [&](std::size_t i, int part) { attend(cpu, a, group, cpu.items()[i], part); });
}

void index_select(ops::Device& device, const ops::IndexSelectArgs& a) noexcept {
  constexpr std::size_t kScoresAtOnce = std::size_t{4} << 20;  // of all queries together
  CpuDevice& cpu = cpu_of(device);
  std::vector<IndexQuery> queries;
  std::size_t n_scores = 0;
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      const std::uint32_t token = row.first_token + i, n_keys = row.length + i + 1;
      if (n_keys <= a.top_k) {  // all of them
        for (std::uint32_t p = 0; p < n_keys; ++p) a.selected[std::size_t{token} * a.top_k + p] = p;
        continue;
      }
      if (n_scores + n_keys > kScoresAtOnce) {
        select_some(cpu, a, queries, n_scores);
        queries.clear();
        n_scores = 0;
      }
      queries.push_back({&row, token, n_keys, n_scores});
      n_scores += n_keys;
    }
  }
  select_some(cpu, a, queries, n_scores);
}

}  // namespace kvasir::backend::cpu
