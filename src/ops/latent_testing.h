// For tests of backends: a latent layer's append, index and attention over some rows in any chunks.
// Views point at the vectors' memory, which the device must see. Not used by the program itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/testing.h"

namespace kvasir::ops::testing::latent {

struct Case {
  const char* name;
  std::uint32_t n_heads = 4, rank = 32, rope_dim = 8;
  DType type = DType::bf16;
  std::vector<std::uint32_t> lengths{150};                   // tokens of each row
  std::uint32_t top_k = 0, index_heads = 2, index_dim = 16;  // top_k 0: no index
  std::uint32_t block_tokens = 64, chunk = 0;                // chunk 0: a row's tokens in one step
  std::uint32_t dim() const { return rank + rope_dim; }
  std::uint32_t rope_step() const { return rope_dim + 16; }  // other columns lie between
  std::size_t n_tokens() const {
    return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  }
};

inline const Case kCases[] = {
    {"golden", 4},
    {"f32", 4, 32, 8, DType::f32},
    {"deepseek_v3", 16, 512, 64, DType::bf16, {130}},
    {"many_heads", 50, 16, 8, DType::f32, {70}},
    {"odd_dims", 5, 24, 10, DType::bf16, {100}},
    {"three_rows", 4, 32, 8, DType::bf16, {70, 3, 129}},
    {"index", 4, 32, 8, DType::bf16, {150}, 32},
    {"index_f32", 5, 32, 8, DType::f32, {170}, 100},
    {"index_three_rows", 4, 32, 8, DType::bf16, {70, 3, 129}, 32, 5, 32},
    {"index_wide", 3, 64, 16, DType::bf16, {140}, 65, 4, 128},
};

struct Inputs {
  std::vector<float> q, q_rope, latent, rope, index_q, index_k, weights;
};

inline Inputs draw(const Case& c) {
  std::mt19937 rng(c.dim() + c.top_k);
  const std::size_t n = c.n_tokens();
  return {random_floats(n * c.n_heads * c.rank, rng),
          random_floats(n * c.n_heads * c.rope_step(), rng),
          random_floats(n * c.rank, rng),
          random_floats(n * c.rope_dim, rng),
          random_floats(n * c.index_heads * c.index_dim, rng),
          random_floats(n * c.index_dim, rng),
          random_floats(n * c.index_heads, rng)};
}

struct Outcome {
  std::vector<float> out;               // [n_tokens, n_heads · rank]
  std::vector<std::uint32_t> selected;  // [n_tokens, top_k]
  bool operator==(const Outcome& other) const {
    return same_bits(out, other.out) && selected == other.selected;
  }
};

// Feeds the rows step by step, each step `chunk` tokens of every row that has any left.
class Session {
 public:
  Session(Device& device, const Case& c, const Inputs& in) : device_(device), c_(c), in_(in) {
    longest_ = *std::max_element(c.lengths.begin(), c.lengths.end());
    blocks_a_row_ = (longest_ + c.block_tokens - 1) / c.block_tokens;
    const std::size_t n_slots = blocks_a_row_ * c.lengths.size() * c.block_tokens;
    latent_.assign(n_slots * c.dim() * size_of(c.type), std::byte{0xff});  // NaNs
    index_.assign(n_slots * c.index_dim * size_of(c.type), std::byte{0xff});
    for (std::size_t i = blocks_a_row_ * c.lengths.size(); i > 0; --i)
      table_.push_back(BlockId{static_cast<std::uint32_t>(i - 1)});
    result_.out.resize(c.n_tokens() * c.n_heads * c.rank);
    result_.selected.assign(c.n_tokens() * c.top_k, ~0u);
  }
  Outcome run() {
    const std::uint32_t chunk = c_.chunk == 0 ? longest_ : c_.chunk;
    for (std::uint32_t done = 0; done < longest_; done += chunk) step(done, chunk);
    return result_;
  }

 private:
  std::vector<float> take(const std::vector<float>& all) const {
    const std::size_t width = all.size() / c_.n_tokens();
    std::vector<float> some;
    for (const auto t : from_) some.insert(some.end(), &all[t * width], &all[t * width] + width);
    return some;
  }
  MatView matrix(std::vector<float>& x) const {
    const auto n = static_cast<std::uint32_t>(from_.size());
    return mat_view(x.data(), n, static_cast<std::uint32_t>(x.size() / n));
  }
  void step(std::uint32_t done, std::uint32_t chunk) {
    std::vector<KvRowView> rows;
    from_.clear();
    std::size_t base = 0;
    for (std::size_t r = 0; r < c_.lengths.size(); base += c_.lengths[r++]) {
      if (c_.lengths[r] <= done) continue;
      const std::uint32_t n = std::min(chunk, c_.lengths[r] - done);
      rows.push_back({.blocks = &table_[r * blocks_a_row_],
                      .length = done,
                      .n_new = n,
                      .first_token = static_cast<std::uint32_t>(from_.size())});
      for (std::uint32_t i = 0; i < n; ++i) from_.push_back(base + done + i);
    }
    LatentLayerView view;
    view.latent = latent_.data(), view.index = index_.data(), view.type = c_.type;
    view.rank = c_.rank, view.rope_dim = c_.rope_dim, view.index_dim = c_.index_dim;
    view.block_tokens = c_.block_tokens, view.rows = rows;
    run_ops(view);
  }
  void run_ops(const LatentLayerView& view) {
    auto q = take(in_.q), q_rope = take(in_.q_rope), latent = take(in_.latent),
         rope = take(in_.rope), index_q = take(in_.index_q), index_k = take(in_.index_k),
         weights = take(in_.weights);
    std::vector<std::uint32_t> selected(from_.size() * c_.top_k, ~0u);
    std::vector<float> out(from_.size() * c_.n_heads * c_.rank);
    const OpTable& ops = device_.ops();
    ops.latent_append(device_, {.latent = matrix(latent),
                                .rope_key = matrix(rope),
                                .index_key = c_.top_k > 0 ? matrix(index_k) : MatView{},
                                .kv = view});
    if (c_.top_k > 0) {
      ops.index_select(device_, {.q = matrix(index_q),
                                 .weights = matrix(weights),
                                 .kv = view,
                                 .n_heads = c_.index_heads,
                                 .top_k = c_.top_k,
                                 .selected = selected});
    }
    ops.latent_attention(device_, {.q_latent = matrix(q),
                                   .q_rope = matrix(q_rope),
                                   .rope_step = c_.rope_step(),
                                   .kv = view,
                                   .n_heads = c_.n_heads,
                                   .scale = 0.125f,
                                   .selected = selected,
                                   .top_k = c_.top_k,
                                   .out = matrix(out)});
    const std::size_t width = std::size_t{c_.n_heads} * c_.rank;
    for (std::size_t i = 0; i < from_.size(); ++i) {
      std::copy_n(&out[i * width], width, &result_.out[from_[i] * width]);
      std::copy_n(selected.begin() + static_cast<std::ptrdiff_t>(i * c_.top_k), c_.top_k,
                  result_.selected.begin() + static_cast<std::ptrdiff_t>(from_[i] * c_.top_k));
    }
  }

  Device& device_;
  const Case& c_;
  const Inputs& in_;
  std::uint32_t longest_ = 0;
  std::size_t blocks_a_row_ = 0;
  std::vector<std::byte> latent_, index_;
  std::vector<BlockId> table_;
  std::vector<std::size_t> from_;  // flat token of each token of the step
  Outcome result_;
};

inline Outcome run(Device& device, const Case& c, const Inputs& in) {
  return Session(device, c, in).run();
}

}  // namespace kvasir::ops::testing::latent
