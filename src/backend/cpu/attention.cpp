// kv_append, kv_convert and attention: threads take (row, kv head, some queries); no result is
// shared between them.
#include <algorithm>
#include <array>

#include "backend/cpu/detail/cpu_ops.h"
#include "base/half.h"

namespace kvasir::backend::cpu {
namespace {

static_assert(sizeof(BlockId) == sizeof(std::uint32_t));

constexpr std::size_t kEncodeWork = 32;  // multiply-adds that take as long as encoding an element

codec::KvRow row_at(const KvLayerView& kv,
                    const KvEncodedSide& side,
                    const BlockId* blocks,
                    std::uint32_t head,
                    std::uint32_t position) noexcept {
  return side.row(
      kv.row_index(blocks[position / kv.block_tokens], head, position % kv.block_tokens));
}

// x as the exact type holds it.
void round_row(
    const CpuDevice& cpu, DType type, const float* x, std::size_t n, float* out) noexcept {
  if (type == DType::bf16) return cpu.kernels().round_to_bf16(x, n, out);
  for (std::size_t i = 0; i < n; ++i) out[i] = type == DType::f16 ? to_f32(to_f16(x[i])) : x[i];
}

// rounded: room for a row.
void append_row(const CpuDevice& cpu,
                const KvLayerView& kv,
                const KvEncodedSide& side,
                const float* x,
                const codec::KvRow& to,
                float* rounded) noexcept {
  if (!side.codec.is_exact()) {
    round_row(cpu, kv.type, x, kv.head_dim, rounded);
    codec::encode_row(side.codec, rounded, kv.head_dim, to);
  } else if (kv.type == DType::bf16) {
    cpu.kernels().store_bf16(x, kv.head_dim, reinterpret_cast<std::uint16_t*>(to.planes[0]));
  } else {
    codec::encode_row(side.codec, x, kv.head_dim, to);
  }
}

void convert_position(const ops::KvConvertArgs& a, std::uint32_t position, float* x) noexcept {
  const KvLayerView& kv = a.kv;
  const auto convert = [&](const KvEncodedSide& exact, const KvEncodedSide& encoded) {
    for (std::uint32_t h = 0; h < kv.n_kv_heads; ++h) {
      codec::decode_row(exact.codec, row_at(kv, exact, a.from, h, position), kv.head_dim, x);
      codec::encode_row(encoded.codec, x, kv.head_dim, row_at(kv, encoded, a.to, h, position));
    }
  };
  convert(kv.k_side(false), kv.k_encoded);
  convert(kv.v_side(false), kv.v_encoded);
}

// The table that codes are looked up in, repeated to 16 entries at least: integers or centroids.
using CodeTable = std::array<float, 256>;

KvCode fill_table(const codec::KvCodec& codec, bool rounds, CodeTable& table) noexcept {
  const auto centroids = codec::centroids(codec);
  if (codec.bits == 8 && centroids.empty())
    return codec::has_signed_codes(codec) ? KvCode::signed_byte : KvCode::byte;
  const std::size_t n_codes = std::size_t{1} << codec.bits;
  for (std::size_t i = 0; i < std::max<std::size_t>(n_codes, 16); ++i) {
    const float value =
        centroids.empty() ? static_cast<float>(i % n_codes) : centroids[i % n_codes];
    table[i] = rounds ? round_to_bf16(value) : value;
  }
  if (codec.bits == 8) return rounds ? KvCode::wide_bf16 : KvCode::wide;
  return codec.bits == 5 ? KvCode::five : KvCode::narrow;
}

EncodedSide encoded_side(const KvLayerView& kv,
                         const KvEncodedSide& side,
                         CodeTable& table) noexcept {
  if (side.codec.is_exact()) return {};
  const auto plane = [&](std::size_t part) {
    return reinterpret_cast<const std::uint8_t*>(side.planes[part]);
  };
  EncodedSide out;
  out.code = fill_table(side.codec, kv.type == DType::bf16, table);
  out.codes = plane(0);
  out.scales = plane(1);
  out.offsets = codec::has_offsets(side.codec) ? plane(2) : nullptr;
  out.table = table.data();
  out.codes_bytes = static_cast<std::uint32_t>(side.row_bytes[0]);
  out.scales_bytes = static_cast<std::uint32_t>(side.row_bytes[1]);
  out.bits = side.codec.bits;
  out.group = codec::group_of(side.codec);
  out.n_groups = kv.head_dim / out.group;
  out.scale = side.codec.scale_type == codec::ScaleType::f32   ? ScaleKind::f32
              : side.codec.scale_type == codec::ScaleType::f16 ? ScaleKind::f16
                                                               : ScaleKind::bf16;
  out.offset_is_zero_point = codec::has_zero_points(side.codec);
  return out;
}

// Later queries, which see more keys, come first: the last items to be dealt are the short ones.
void list_items(const ops::AttentionArgs& a,
                std::uint32_t chunk_of_exact,
                std::uint32_t chunk_of_encoded,
                std::vector<AttentionItem>& items) {
  items.clear();
  for (const KvRowView& row : a.kv.rows) {
    const std::uint32_t chunk = row.is_encoded ? chunk_of_encoded : chunk_of_exact;
    for (std::uint32_t end = row.n_new; end > 0;) {
      const std::uint32_t begin = (end - 1) / chunk * chunk;
      for (std::uint32_t h = 0; h < a.kv.n_kv_heads; ++h) {
        items.push_back({.blocks = reinterpret_cast<const std::uint32_t*>(row.blocks),
                         .position = row.length + begin,
                         .n_queries = end - begin,
                         .token = row.first_token + begin,
                         .kv_head = h,
                         .is_encoded = row.is_encoded,
                         .n_keys = a.both_ways ? row.length + row.n_new : 0});
      }
      end = begin;
    }
  }
}

// Where whole items would leave threads idle, those of one query are split at tiles.
constexpr std::size_t kItemsOfThread = 4;
constexpr std::uint32_t kFewestTiles = 4;  // of a part

struct SplitItem {
  AttentionItem whole;
  std::uint32_t first_tile, n_tiles;
  const float* partials;
};

std::uint32_t first_tile(const KvLayerView& kv, const AttentionItem& item) noexcept {
  const bool is_windowed = kv.window != 0 && item.position + 1 > kv.window;
  return is_windowed ? (item.position + 1 - kv.window) / kTileKeys : 0;
}

// How many parts of an item, if it is one that can be split.
std::uint32_t parts_of(const AttentionItem& item, std::uint32_t n_tiles, std::size_t n_wanted) {
  if (item.n_queries != 1 || item.n_keys > 0) return 1;
  return std::max(1u, std::min(static_cast<std::uint32_t>(n_wanted), n_tiles / kFewestTiles));
}

// Puts parts in the place of items that are split, and returns those.
std::vector<SplitItem> split_items(CpuDevice& cpu,
                                   const ops::AttentionArgs& a,
                                   std::size_t tile_floats) {
  const std::vector<AttentionItem> whole = cpu.items();
  const std::size_t n_wanted = kItemsOfThread * static_cast<std::size_t>(cpu.n_threads());
  if (cpu.n_threads() == 1 || whole.empty() || whole.size() >= n_wanted) return {};
  std::vector<SplitItem> splits;
  std::vector<AttentionItem>& items = cpu.items();
  std::size_t n_floats = 0;
  items.clear();
  for (const AttentionItem& item : whole) {
    const std::uint32_t first = first_tile(a.kv, item),
                        n_tiles = item.position / kTileKeys + 1 - first,
                        n_parts = parts_of(item, n_tiles, (n_wanted - 1) / whole.size() + 1);
    for (std::uint32_t part = 0; part < n_parts; ++part) {
      items.push_back(item);
      items.back().first_tile = first + n_tiles * part / n_parts;
      items.back().end_tile = first + n_tiles * (part + 1) / n_parts;
    }
    if (n_parts == 1) continue;
    splits.push_back({item, first, n_tiles, nullptr});
    n_floats += n_tiles * tile_floats;
  }
  float* partials = cpu.partials().floats(n_floats);
  auto split = splits.begin();
  for (AttentionItem& item : items) {
    if (split == splits.end()) break;
    if (item.token != split->whole.token || item.kv_head != split->whole.kv_head) continue;
    split->partials = partials;
    item.partials = partials + (item.first_tile - split->first_tile) * tile_floats;
    if (item.end_tile != split->first_tile + split->n_tiles) continue;
    partials += split->n_tiles * tile_floats;
    ++split;
  }
  return splits;
}

// Finished outputs of rotated values (KV-16).
void turn_back(const ops::AttentionArgs& a, const AttentionItem& item, std::uint32_t heads) {
  if (!item.is_encoded || !codec::is_rotated(a.kv.v_encoded.codec)) return;
  for (std::uint32_t query = 0; query < item.n_queries; ++query) {
    for (std::uint32_t h = item.kv_head * heads; h < (item.kv_head + 1) * heads; ++h)
      codec::unrotate(a.out.row(item.token + query) + std::size_t{h} * a.kv.head_dim,
                      a.kv.head_dim);
  }
}

}  // namespace

void append_token(const CpuDevice& cpu,
                  const ops::KvAppendArgs& a,
                  const KvRowView& row,
                  std::uint32_t i,
                  float* rounded) noexcept {
  const KvLayerView& kv = a.kv;
  const KvEncodedSide k = kv.k_side(row.is_encoded), v = kv.v_side(row.is_encoded);
  const std::uint32_t position = row.length + i, token = row.first_token + i;
  for (std::uint32_t h = 0; h < kv.n_kv_heads; ++h) {
    const std::size_t column = std::size_t{h} * kv.head_dim;
    append_row(cpu, kv, k, a.k.row(token) + column, row_at(kv, k, row.blocks, h, position),
               rounded);
    append_row(cpu, kv, v, a.v.row(token) + column, row_at(kv, v, row.blocks, h, position),
               rounded);
  }
}

void kv_append(ops::Device& device, const ops::KvAppendArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::size_t width = std::size_t{a.kv.n_kv_heads} * a.kv.head_dim;
  for (const KvRowView& row : a.kv.rows) {
    const std::size_t work = row.n_new * width * (row.is_encoded ? kEncodeWork : 1);
    cpu.split(row.n_new, work, [&](std::size_t begin, std::size_t end, int part) {
      float* const rounded = cpu.thread_scratch(part, a.kv.head_dim);
      for (std::size_t i = begin; i < end; ++i)
        append_token(cpu, a, row, static_cast<std::uint32_t>(i), rounded);
    });
  }
}

void kv_convert(ops::Device& device, const ops::KvConvertArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::size_t n = a.end - a.begin;
  cpu.split(n, n * a.kv.n_kv_heads * a.kv.head_dim * kEncodeWork,
            [&](std::size_t begin, std::size_t end, int part) {
              float* const x = cpu.thread_scratch(part, a.kv.head_dim);
              for (std::size_t i = begin; i < end; ++i)
                convert_position(a, a.begin + static_cast<std::uint32_t>(i), x);
            });
}

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::uint32_t heads = a.n_heads / a.kv.n_kv_heads;
  CodeTable k_table, v_table;
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
                         .sinks = a.sinks,
                         .is_f16 = a.kv.type == DType::f16,
                         .k_encoded = encoded_side(a.kv, a.kv.k_encoded, k_table),
                         .v_encoded = encoded_side(a.kv, a.kv.v_encoded, v_table)};
  const bool is_bf16 = a.kv.type == DType::bf16;
  const std::uint32_t chunk = std::max(1u, kChunkQueries / heads),
                      chunk_of_exact = std::max(
                          1u, (is_bf16 ? cpu.kernels().attention_pairs : kChunkQueries) / heads);
  const std::size_t n_floats =
      attention_scratch_floats(job.head_dim, std::size_t{chunk_of_exact} * heads);
  list_items(a, chunk_of_exact, chunk, cpu.items());
  const auto splits = split_items(cpu, a, attention_partial_floats(job.head_dim, heads));
  cpu.deal(cpu.items().size(), [&](std::size_t i, int part) {
    const AttentionItem& item = cpu.items()[i];
    cpu.kernels().attention(job, item, cpu.thread_scratch(part, n_floats));
    if (!item.partials) turn_back(a, item, heads);
  });
  if (splits.empty()) return;
  cpu.deal(splits.size(), [&](std::size_t i, int part) {
    const SplitItem& split = splits[i];
    cpu.kernels().merge_tiles(job, split.whole, split.partials, split.n_tiles,
                              cpu.thread_scratch(part, n_floats));
    turn_back(a, split.whole, heads);
  });
}

}  // namespace kvasir::backend::cpu
