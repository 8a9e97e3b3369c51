// kv_append and attention: threads take (row, kv head, some queries); no result is shared between
// them.
#include <algorithm>
#include <cstring>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

static_assert(sizeof(BlockId) == sizeof(std::uint32_t));

void append_token(const CpuDevice& cpu,
                  const ops::KvAppendArgs& a,
                  const KvRowView& row,
                  std::uint32_t i) noexcept {
  const KvLayerView& kv = a.kv;
  const std::uint32_t position = row.length + i, token = row.first_token + i;
  const auto store = [&](const float* from, std::byte* to) {
    if (kv.type == DType::f32) {
      std::memcpy(to, from, kv.head_dim * sizeof(float));
    } else {
      cpu.kernels().store_bf16(from, kv.head_dim, reinterpret_cast<std::uint16_t*>(to));
    }
  };
  for (std::uint32_t h = 0; h < kv.n_kv_heads; ++h) {
    const std::size_t at =
        kv.offset(row.blocks[position / kv.block_tokens], h, position % kv.block_tokens);
    store(a.k.row(token) + std::size_t{h} * kv.head_dim, kv.k + at);
    store(a.v.row(token) + std::size_t{h} * kv.head_dim, kv.v + at);
  }
}

// Later queries, which see more keys, come first: the last items to be dealt are the short ones.
void list_items(const ops::AttentionArgs& a,
                std::uint32_t chunk,
                std::vector<AttentionItem>& items) {
  items.clear();
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t end = row.n_new; end > 0;) {
      const std::uint32_t begin = (end - 1) / chunk * chunk;
      for (std::uint32_t h = 0; h < a.kv.n_kv_heads; ++h) {
        items.push_back({.blocks = reinterpret_cast<const std::uint32_t*>(row.blocks),
                         .position = row.length + begin,
                         .n_queries = end - begin,
                         .token = row.first_token + begin,
                         .kv_head = h});
      }
      end = begin;
    }
  }
}

std::size_t scratch_floats(const AttentionJob& job, std::size_t n_pairs) noexcept {
  const std::size_t dim = (job.head_dim + 31) / 32 * 32;
  return 2 * dim * kTileKeys + n_pairs * (2 * dim + kTileKeys + 2);
}

}  // namespace

void kv_append(ops::Device& device, const ops::KvAppendArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::size_t width = std::size_t{a.kv.n_kv_heads} * a.kv.head_dim;
  for (const KvRowView& row : a.kv.rows) {
    cpu.split(row.n_new, row.n_new * width, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i)
        append_token(cpu, a, row, static_cast<std::uint32_t>(i));
    });
  }
}

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::uint32_t heads = a.n_heads / a.kv.n_kv_heads;
  const AttentionJob job{.q = a.q.data,
                         .q_stride = a.q.stride,
                         .out = a.out.data,
                         .out_stride = a.out.stride,
                         .k = reinterpret_cast<const std::uint8_t*>(a.kv.k),
                         .v = reinterpret_cast<const std::uint8_t*>(a.kv.v),
                         .is_f32 = a.kv.type == DType::f32,
                         .n_kv_heads = a.kv.n_kv_heads,
                         .head_dim = a.kv.head_dim,
                         .block_tokens = a.kv.block_tokens,
                         .window = a.kv.window,
                         .queries_per_kv = heads,
                         .scale = a.scale,
                         .softcap = a.softcap,
                         .sinks = a.sinks};
  const std::uint32_t chunk = std::max(1u, kChunkQueries / heads);
  list_items(a, chunk, cpu.items());
  cpu.deal(cpu.items().size(), [&](std::size_t i, int part) {
    const AttentionItem& item = cpu.items()[i];
    const std::size_t n_floats = scratch_floats(job, std::size_t{chunk} * heads);
    cpu.kernels().attention(job, item, cpu.thread_scratch(part, n_floats));
  });
}

}  // namespace kvasir::backend::cpu
