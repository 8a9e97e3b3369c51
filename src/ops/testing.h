// For tests of backends: a KV layer of some rows in blocks, filled through kv_append in any chunks,
// and attention over it. Views point at the vectors' memory, which the device must see. Not used by
// the program itself.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "ops/op_table.h"
#include "tensor/kv_view.h"

namespace kvasir::ops::testing {

inline std::vector<float> random_floats(std::size_t n, std::mt19937& rng, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct AttentionCase {
  std::uint32_t n_heads = 6, n_kv_heads = 2, head_dim = 64;
  std::uint32_t block_tokens = 64, window = 0;
  DType type = DType::bf16;
  float softcap = 0.0f;
  bool sinks = false;
  std::vector<std::uint32_t> lengths{150};  // tokens of each row
  std::uint32_t chunk = 0;                  // tokens a row feeds in one step; 0: all
  codec::KvCodec k_codec{}, v_codec{};      // kind exact: the layer has no encoded form
  std::uint32_t exact_rows = 0;             // bit r: row r is exact although there is one
  bool both_ways = false;                   // an encoder's; chunk must be 0
};

struct Activations {
  std::vector<float> q, k, v, sinks;  // tokens of all rows, row after row
};

inline std::size_t total_tokens(const AttentionCase& c) {
  std::size_t n = 0;
  for (const auto l : c.lengths) n += l;
  return n;
}

inline Activations draw(const AttentionCase& c, std::mt19937& rng) {
  const std::size_t n = total_tokens(c);
  return {random_floats(n * c.n_heads * c.head_dim, rng),
          random_floats(n * c.n_kv_heads * c.head_dim, rng),
          random_floats(n * c.n_kv_heads * c.head_dim, rng), random_floats(c.n_heads, rng)};
}

// A layer's planes for rows of up to `longest` tokens, each with its own blocks in either form.
class KvLayer {
 public:
  KvLayer(const AttentionCase& c, std::uint32_t longest)
      : blocks_a_row_((longest + c.block_tokens - 1) / c.block_tokens) {
    const auto n_rows = static_cast<std::uint32_t>(c.lengths.size());
    tables_.resize(std::size_t{blocks_a_row_} * n_rows);
    for (std::size_t i = 0; i < tables_.size(); ++i)
      tables_[i] = BlockId{static_cast<std::uint32_t>(tables_.size() - 1 - i)};
    view_.type = c.type;
    view_.n_kv_heads = c.n_kv_heads;
    view_.head_dim = c.head_dim;
    view_.block_tokens = c.block_tokens;
    view_.window = c.window;
    const std::size_t n = tables_.size() * c.n_kv_heads * c.block_tokens;
    view_.k = make_plane(n * c.head_dim * size_of(c.type));
    view_.v = make_plane(n * c.head_dim * size_of(c.type));
    view_.k_encoded = make_side(c.k_codec, n, c.head_dim);
    view_.v_encoded = make_side(c.v_codec, n, c.head_dim);
  }

  const BlockId* table(std::size_t row) const { return &tables_[row * blocks_a_row_]; }
  KvLayerView view(std::span<const KvRowView> rows) const {
    KvLayerView out = view_;
    out.rows = rows;
    return out;
  }
  const std::vector<std::vector<std::byte>>& planes() const { return planes_; }

 private:
  std::byte* make_plane(std::size_t size_bytes) {  // NaNs: unwritten slots must not matter
    planes_.emplace_back(size_bytes, std::byte{0xff});
    return planes_.back().data();
  }
  KvEncodedSide make_side(const codec::KvCodec& codec, std::size_t n_rows, std::uint32_t dim) {
    KvEncodedSide side;
    if (codec.is_exact()) return side;
    side.codec = codec;
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
      side.row_bytes[part] = codec::row_bytes(codec, static_cast<codec::KvRowPart>(part), dim);
      if (side.row_bytes[part] > 0) side.planes[part] = make_plane(n_rows * side.row_bytes[part]);
    }
    return side;
  }

  std::uint32_t blocks_a_row_;
  std::vector<BlockId> tables_;
  std::vector<std::vector<std::byte>> planes_;
  KvLayerView view_;
};

// Feeds the rows step by step, each step some tokens of every row that has any left. Result [token,
// n_heads · head_dim]; `layer` as the last step left it.
inline std::vector<float> attend_all(Device& device,
                                     const AttentionCase& c,
                                     const Activations& in,
                                     KvLayer& layer) {
  const std::uint32_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const auto n_rows = static_cast<std::uint32_t>(c.lengths.size());
  const bool has_encoded = !c.k_codec.is_exact();
  std::vector<float> out(total_tokens(c) * c.n_heads * c.head_dim);

  const std::uint32_t chunk = c.chunk == 0 ? longest : c.chunk, q_width = c.n_heads * c.head_dim,
                      kv_width = c.n_kv_heads * c.head_dim;
  for (std::uint32_t done = 0; done < longest; done += chunk) {
    std::vector<KvRowView> rows;
    std::vector<float> q, keys, values;
    std::vector<std::size_t> from;  // flat token of each token of the step
    std::size_t base = 0;
    for (std::uint32_t r = 0; r < n_rows; base += c.lengths[r++]) {
      if (c.lengths[r] <= done) continue;
      const std::uint32_t n = std::min(chunk, c.lengths[r] - done);
      rows.push_back({layer.table(r), 0, done, n, static_cast<std::uint32_t>(from.size()),
                      has_encoded && (c.exact_rows >> r & 1u) == 0});
      for (std::uint32_t i = 0; i < n; ++i) from.push_back(base + done + i);
    }
    const auto take = [&](const std::vector<float>& all, std::size_t width,
                          std::vector<float>& to) {
      for (const auto t : from)
        to.insert(to.end(), all.begin() + static_cast<std::ptrdiff_t>(t * width),
                  all.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
    };
    take(in.q, q_width, q), take(in.k, kv_width, keys), take(in.v, kv_width, values);
    const auto n = static_cast<std::uint32_t>(from.size());
    const KvLayerView view = layer.view(rows);
    std::vector<float> step_out(q.size());
    device.ops().kv_append(device, {.k = mat_view(keys.data(), n, kv_width),
                                    .v = mat_view(values.data(), n, kv_width),
                                    .kv = view});
    device.ops().attention(device, {.q = mat_view(q.data(), n, q_width),
                                    .kv = view,
                                    .n_heads = c.n_heads,
                                    .scale = 0.125f,
                                    .softcap = c.softcap,
                                    .sinks = c.sinks ? in.sinks.data() : nullptr,
                                    .both_ways = c.both_ways,
                                    .out = mat_view(step_out.data(), n, q_width)});
    for (std::size_t i = 0; i < from.size(); ++i)
      std::memcpy(&out[from[i] * q_width], &step_out[i * q_width], q_width * sizeof(float));
  }
  return out;
}
inline std::vector<float> attend_all(Device& device,
                                     const AttentionCase& c,
                                     const Activations& in) {
  KvLayer layer(c, *std::max_element(c.lengths.begin(), c.lengths.end()));
  return attend_all(device, c, in, layer);
}

}  // namespace kvasir::ops::testing
