// For tests of backends: a gated delta layer's convolution, norms, gates and recurrence over some
// rows in any chunks. Views point at the vectors' memory, which the device must see. Not used by
// the program itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/testing.h"

namespace kvasir::ops::testing::recurrent {

struct Shape {
  const char* name;
  std::uint32_t n_key_heads, n_value_heads, key_dim, value_dim, kernel;
  DType conv_type = DType::f32;
  std::vector<std::uint32_t> lengths{53};  // tokens of each row
  std::uint32_t n_channels() const { return 2 * n_key_heads * key_dim + n_value_heads * value_dim; }
};

inline const Shape kShapes[] = {
    {"qwen3_next", 1, 2, 128, 128, 4},
    {"golden", 2, 4, 16, 16, 4},
    {"odd_dims", 3, 3, 40, 24, 3},
    {"wide_keys", 1, 3, 192, 8, 2},
    {"bf16_tail", 2, 4, 16, 16, 4, DType::bf16},
    {"three_rows", 1, 2, 128, 17, 4, DType::f32, {20, 1, 37}},
};

// A layer's inputs, tokens of all rows one after another, and its weights.
struct Layer {
  Shape shape;
  std::uint32_t n_tokens = 0;
  std::vector<float> x, a, b, weight, bias, a_log, dt_bias;
  explicit Layer(const Shape& s) : shape(s) {
    std::mt19937 rng(s.n_channels());
    for (const auto n : s.lengths) n_tokens += n;
    x = random_floats(std::size_t{n_tokens} * s.n_channels(), rng);
    a = random_floats(std::size_t{n_tokens} * s.n_value_heads, rng, 2.0f), b = a;
    std::reverse(b.begin(), b.end());
    weight = random_floats(std::size_t{s.kernel} * s.n_channels(), rng, 0.5f);
    bias = random_floats(s.n_channels(), rng, 0.1f);
    a_log = random_floats(s.n_value_heads, rng), dt_bias = random_floats(s.n_value_heads, rng);
  }
};

// The recurrent state of some rows.
struct States {
  std::vector<std::byte> conv;
  std::vector<float> delta;
  States(const Shape& s, std::size_t n_rows)
      : conv(n_rows * view(s).conv_bytes(), std::byte{0xff}),
        delta(n_rows * view(s).delta_bytes() / sizeof(float), std::nanf("")) {}
  static RecurrentLayerView view(const Shape& s) {
    return {.conv_type = s.conv_type,
            .conv_kernel = s.kernel,
            .n_channels = s.n_channels(),
            .n_value_heads = s.n_value_heads,
            .value_dim = s.value_dim,
            .key_dim = s.key_dim,
            .rows = {}};
  }
  bool operator==(const States& other) const {
    return conv == other.conv && same_bits(delta, other.delta);
  }
};

// Row r of `to` after its tokens, from row r of `from` (null: from the start).
inline RecurrentRowView row_view(const Shape& s, const States* from, States& to, std::size_t r) {
  const auto view = States::view(s);
  const std::size_t conv = r * view.conv_bytes(), delta = r * view.delta_bytes() / sizeof(float);
  return {.conv_from = from ? &from->conv[conv] : nullptr,
          .conv_to = &to.conv[conv],
          .delta_from = from ? &from->delta[delta] : nullptr,
          .delta_to = &to.delta[delta]};
}

// The layer on tokens `from` of its inputs; rows name places in that list.
inline std::vector<float> run_step(Device& device,
                                   const Layer& in,
                                   const std::vector<std::size_t>& from,
                                   std::span<const RecurrentRowView> rows,
                                   bool with_output = true) {
  const Shape& s = in.shape;
  const auto n = static_cast<std::uint32_t>(from.size());
  const auto take = [&](const std::vector<float>& all, std::size_t width) {
    std::vector<float> some;
    for (const auto t : from) some.insert(some.end(), &all[t * width], &all[t * width] + width);
    return some;
  };
  const std::uint32_t keys = s.n_key_heads * s.key_dim, values = s.n_value_heads * s.value_dim,
                      heads = s.n_value_heads;
  auto x = take(in.x, s.n_channels()), a = take(in.a, heads), b = take(in.b, heads);
  std::vector<float> conv(x.size()), y(std::size_t{n} * values);
  const MatView qkv = mat_view(conv.data(), n, s.n_channels()),
                decay = mat_view(a.data(), n, heads), beta = mat_view(b.data(), n, heads);
  auto state = States::view(s);
  state.rows = rows;
  device.ops().causal_conv(device, {.x = mat_view(x.data(), n, s.n_channels()),
                                    .weight = in.weight.data(),
                                    .bias = in.bias.data(),
                                    .silu = true,
                                    .state = state,
                                    .out = qkv});
  const MatView q = qkv.columns(0, keys), k = qkv.columns(keys, keys);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
  device.ops().l2_norm(device,
                       {.x = q, .group = s.key_dim, .eps = 1e-6f, .scale = scale, .out = q});
  device.ops().l2_norm(device, {.x = k, .group = s.key_dim, .eps = 1e-6f, .out = k});
  device.ops().delta_gates(device, {.a = decay,
                                    .b = beta,
                                    .a_log = in.a_log.data(),
                                    .dt_bias = in.dt_bias.data(),
                                    .decay = decay,
                                    .beta = beta});
  device.ops().gated_delta(device,
                           {.q = q,
                            .k = k,
                            .v = qkv.columns(2 * keys, values),
                            .decay = decay,
                            .beta = beta,
                            .state = state,
                            .out = with_output ? mat_view(y.data(), n, values) : MatView{}});
  return y;
}

struct Outcome {
  std::vector<float> y;  // [n_tokens, n_value_heads · value_dim]
  States states;
  bool operator==(const Outcome& other) const {
    return same_bits(y, other.y) && states == other.states;
  }
};

// All rows together, `chunk` tokens of each a step (0: all), states in place after the first.
inline Outcome run_all(Device& device, const Layer& in, std::uint32_t chunk = 0) {
  const Shape& s = in.shape;
  const std::size_t width = std::size_t{s.n_value_heads} * s.value_dim;
  Outcome out{std::vector<float>(in.n_tokens * width), States(s, s.lengths.size())};
  const std::uint32_t longest = *std::max_element(s.lengths.begin(), s.lengths.end());
  if (chunk == 0) chunk = longest;
  for (std::uint32_t done = 0; done < longest; done += chunk) {
    std::vector<RecurrentRowView> rows;
    std::vector<std::size_t> from;
    std::size_t base = 0;
    for (std::size_t r = 0; r < s.lengths.size(); base += s.lengths[r++]) {
      const std::uint32_t left = s.lengths[r] > done ? s.lengths[r] - done : 0;
      rows.push_back(row_view(s, done == 0 ? nullptr : &out.states, out.states, r));
      rows.back().n_new = std::min(left, chunk);  // 0: the state stays
      rows.back().first_token = static_cast<std::uint32_t>(from.size());
      for (std::uint32_t i = 0; i < rows.back().n_new; ++i) from.push_back(base + done + i);
    }
    const auto y = run_step(device, in, from, rows);
    for (std::size_t i = 0; i < from.size(); ++i)
      std::copy_n(&y[i * width], width, &out.y[from[i] * width]);
  }
  return out;
}

}  // namespace kvasir::ops::testing::recurrent
