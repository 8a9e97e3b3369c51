// Scores of a sparse index (ops/index_select.h): products of attention's tiles, then the heads'
// weighted sum, sixteen keys at a time.

namespace kvasir::backend::cpu {
namespace {

inline void weigh_heads(const AttentionScratch& s,
                        const IndexItem& item,
                        std::uint32_t n_heads,
                        float* scores) {
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    F32x16 sum = zero();
    for (std::size_t h = 0; h < n_heads; ++h)
      sum = fma(set1(item.weights[h]), max(zero(), load(s.p + h * kTileKeys + j)), sum);
    store(scores + j, sum);
  }
}

// scratch: attention's, for n_heads pairs.
void index_scores(const IndexJob& job, const IndexItem& item, float* scratch) {
  AttentionJob keys{};
  keys.k = job.keys, keys.is_f32 = job.is_f32, keys.n_kv_heads = 1;
  keys.head_dim = job.dim, keys.block_tokens = job.block_tokens;
  AttentionItem place{};
  place.blocks = item.blocks;
  const AttentionScratch s = lay_out(keys, job.n_heads, scratch);
  for (std::size_t h = 0; h < job.n_heads; ++h) {
    for_columns(job.dim, [&](std::size_t d, std::size_t n) {
      const F32x16 v = load_n(item.q + h * job.dim + d, n);
      store(s.q + h * s.v_stride + d, job.is_f32 ? v : round_bf16(v));
    });
  }
  for (std::uint32_t tile = item.begin; tile < item.end; tile += kTileKeys) {
    pack_keys(keys, place, tile, KeyRange{item.begin, item.end}, s.keys);
    std::size_t h = 0;
    for (; h + 3 <= job.n_heads; h += 3) score_pairs<3>(keys, s, h);
    for (; h < job.n_heads; ++h) score_pairs<1>(keys, s, h);
    float scores[kTileKeys];
    weigh_heads(s, item, job.n_heads, scores);
    const std::uint32_t left = item.end - tile, n_keys = left < kTileKeys ? left : kTileKeys;
    for (std::uint32_t j = 0; j < n_keys; ++j) item.scores[tile - item.begin + j] = scores[j];
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
