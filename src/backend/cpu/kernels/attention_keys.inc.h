// Which keys queries of attention see, and where those lie.

namespace kvasir::backend::cpu {
namespace {

struct KeyRange {
  std::uint32_t begin, end;
};

inline const std::uint8_t* key_row(const AttentionJob& job,
                                   const AttentionItem& item,
                                   const std::uint8_t* plane,
                                   std::uint32_t position) {
  const std::size_t block = item.blocks[position / job.block_tokens];
  const std::size_t row =
      (block * job.n_kv_heads + item.kv_head) * job.block_tokens + position % job.block_tokens;
  return plane + row * job.head_dim * (job.is_f32 ? 4 : 2);
}

inline KeyRange visible(const AttentionJob& job,
                        const AttentionItem& item,
                        std::uint32_t position) {
  const std::uint32_t begin =
      job.window != 0 && position + 1 > job.window ? position + 1 - job.window : 0;
  if (item.n_keys == 0) return {begin, position + 1};
  const bool ends_early = job.window != 0 && job.window < item.n_keys - position;
  return {begin, ends_early ? position + job.window : item.n_keys};
}

// What the item's queries see together.
inline KeyRange visible(const AttentionJob& job, const AttentionItem& item) {
  return {visible(job, item, item.position).begin,
          visible(job, item, item.position + item.n_queries - 1).end};
}

inline KeyRange inside(KeyRange keys, std::uint32_t tile) {
  const std::uint32_t begin = keys.begin > tile ? keys.begin - tile : 0;
  const std::uint32_t end = keys.end > tile ? keys.end - tile : 0;
  return {begin < kTileKeys ? begin : kTileKeys, end < kTileKeys ? end : kTileKeys};
}

// One side of a tile, 64 rows behind each other, of which `seen` count. What is read after it, of
// the same size, is asked for on the way, line by line in the order of addresses: the tile's values
// while its keys are walked, the next tile's keys while its values are.
struct DirectRows {
  const std::uint8_t* at;
  std::size_t row_bytes;
  const std::uint8_t* next;  // or null
  KeyRange seen;
};

}  // namespace
}  // namespace kvasir::backend::cpu
