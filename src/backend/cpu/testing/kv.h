// Test helper: a KV layer of some rows in blocks, filled through kv_append in any chunks, and
// attention over it.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/testing/weights.h"
#include "tensor/kv_view.h"

namespace kvasir::backend::cpu::testing {

struct AttentionCase {
  std::uint32_t n_heads = 6, n_kv_heads = 2, head_dim = 64;
  std::uint32_t block_tokens = 64, window = 0;
  DType type = DType::bf16;
  float softcap = 0.0f;
  bool sinks = false;
  std::vector<std::uint32_t> lengths{150};  // tokens of each row
  std::uint32_t chunk = 0;                  // tokens a row feeds in one step; 0: all
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

// Feeds the rows step by step, each step some tokens of every row that has any left. Result [token,
// n_heads · head_dim].
inline std::vector<float> attend_all(ops::Device& device,
                                     const AttentionCase& c,
                                     const Activations& in) {
  const std::uint32_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const std::uint32_t blocks_a_row = (longest + c.block_tokens - 1) / c.block_tokens;
  const auto n_rows = static_cast<std::uint32_t>(c.lengths.size());
  const std::size_t row_bytes =
      std::size_t{c.n_kv_heads} * c.block_tokens * c.head_dim * size_of(c.type);
  std::vector<std::byte> k(row_bytes * blocks_a_row * n_rows, std::byte{0xff}),
      v = k;  // NaNs: unwritten slots must not matter
  std::vector<BlockId> tables(std::size_t{blocks_a_row} * n_rows);
  for (std::size_t i = 0; i < tables.size(); ++i)
    tables[i] = BlockId{static_cast<std::uint32_t>(tables.size() - 1 - i)};
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
      rows.push_back({&tables[std::size_t{r} * blocks_a_row], 0, done, n,
                      static_cast<std::uint32_t>(from.size())});
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
    const KvLayerView view{k.data(),   v.data(),       c.type,   c.n_kv_heads,
                           c.head_dim, c.block_tokens, c.window, rows};
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
                                    .out = mat_view(step_out.data(), n, q_width)});
    for (std::size_t i = 0; i < from.size(); ++i)
      std::memcpy(&out[from[i] * q_width], &step_out[i * q_width], q_width * sizeof(float));
  }
  return out;
}

}  // namespace kvasir::backend::cpu::testing
