// For tests: what a row's KV state must be, computed from its tokens alone, without blocks, steps
// or conversions; and the executor that writes such states through a step's views. A position's
// values are marks (kv/testing.h); a recurrence is a sum that halves with every token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kv/kv_scheme.h"
#include "kv/kv_store.h"
#include "kv/testing.h"

namespace kvasir::kv {

using Tokens = std::vector<std::uint32_t>;
using Image = std::vector<std::byte>;

struct Naive {
  KvList list;
  KvScheme scheme;  // of bf16

  // The planes of a layer for positions [first, tokens.size()), as KvStore::planes exports them.
  std::vector<Image> planes(std::size_t layer,
                            std::span<const std::uint32_t> tokens,
                            std::uint32_t first,
                            bool is_encoded) const {
    const KvLayerSpec& spec = list[layer];
    if (spec.is_recurrent()) return state(layer, tokens);
    if (spec.is_latent()) return latent_rows(layer, tokens.subspan(first));
    return is_encoded ? encoded_rows(layer, tokens.subspan(first))
                      : exact_rows(layer, tokens.subspan(first));
  }

  // Whether a resting row of that length is in encoded form, once due rows were converted.
  bool is_encoded(std::size_t layer, std::size_t length) const {
    const auto forms = forms_of(scheme, list);
    return (*forms)[layer].has_encoded() && length >= scheme.transition();
  }

  // Feeds tokens to row `row` of a step, whatever its layers are.
  void feed(const KvViews& views, std::size_t row, std::span<const std::uint32_t> tokens) const {
    for (std::size_t layer = 0; layer < list.size(); ++layer) {
      if (list[layer].is_recurrent())
        step_state(layer, views.recurrent[layer], row, tokens);
      else if (list[layer].is_latent())
        append_latent(layer, views.latent[layer], row, tokens);
    }
    const std::uint32_t length = length_of(views, row);
    for (std::uint32_t i = 0; i < tokens.size(); ++i)
      mark_position(views, row, length + i, tokens[i], Marks::write);
  }
  // The state after fewer tokens than were fed (Executor::replay).
  void replay(const KvViews& views, std::size_t row, std::span<const std::uint32_t> kept) const {
    for (std::size_t layer = 0; layer < list.size(); ++layer)
      if (list[layer].is_recurrent()) step_state(layer, views.recurrent[layer], row, kept);
  }

  std::uint32_t length_of(const KvViews& views, std::size_t row) const {
    for (std::size_t layer = 0; layer < list.size(); ++layer) {
      if (list[layer].is_latent()) return views.latent[layer].rows[row].length;
      if (list[layer].is_attention()) return views.attention[layer].rows[row].length;
    }
    return 0;  // recurrent layers alone: nobody asks where
  }

 private:
  static void append(Image& out, float value) {
    const BFloat16 bits = to_bf16(value);
    const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
    out.insert(out.end(), bytes, bytes + 2);
  }

  std::vector<Image> exact_rows(std::size_t layer, std::span<const std::uint32_t> tokens) const {
    std::vector<Image> out(2);
    for (const std::uint32_t token : tokens)
      for (std::uint32_t head = 0; head < list[layer].n_kv_heads; ++head)
        for (std::uint32_t i = 0; i < list[layer].head_dim; ++i)
          for (const bool is_v : {false, true})
            append(out[is_v], mark(token, layer, head, i, is_v));
    return out;
  }

  std::vector<Image> encoded_rows(std::size_t layer, std::span<const std::uint32_t> tokens) const {
    const auto forms = forms_of(scheme, list);
    const std::uint32_t dim = list[layer].head_dim;
    std::vector<Image> out;
    for (const bool is_v : {false, true}) {
      const codec::KvCodec codec = is_v ? (*forms)[layer].v : (*forms)[layer].k;
      std::vector<Image> parts(codec::kKvRowParts);
      for (const std::uint32_t token : tokens)
        for (std::uint32_t head = 0; head < list[layer].n_kv_heads; ++head)
          append_encoded(codec, mark_row(token, layer, head, dim, is_v), parts);
      for (Image& part : parts)
        if (!part.empty()) out.push_back(std::move(part));
    }
    if (tokens.empty()) out.resize(planes_of_no_tokens(layer));
    return out;
  }
  std::size_t planes_of_no_tokens(std::size_t layer) const {
    const std::uint32_t one[] = {0};
    return encoded_rows(layer, one).size();
  }
  static std::vector<float> mark_row(
      std::uint32_t token, std::size_t layer, std::uint32_t head, std::uint32_t dim, bool is_v) {
    std::vector<float> out(dim);
    for (std::uint32_t i = 0; i < dim; ++i) out[i] = mark(token, layer, head, i, is_v);
    return out;
  }
  static void append_encoded(const codec::KvCodec& codec,
                             const std::vector<float>& values,
                             std::vector<Image>& parts) {
    const auto dim = static_cast<std::uint32_t>(values.size());
    std::vector<Image> row(codec::kKvRowParts);
    codec::KvRow at;
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
      row[part].resize(codec::row_bytes(codec, static_cast<codec::KvRowPart>(part), dim));
      at.planes[part] = row[part].data();
    }
    codec::encode_row(codec, values.data(), dim, at);
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part)
      parts[part].insert(parts[part].end(), row[part].begin(), row[part].end());
  }

  std::vector<Image> latent_rows(std::size_t layer, std::span<const std::uint32_t> tokens) const {
    const LatentSpec& spec = list[layer].latent;
    std::vector<Image> out(spec.index_dim > 0 ? 2 : 1);
    for (const std::uint32_t token : tokens) {
      for (std::uint32_t i = 0; i < spec.rank + spec.rope_dim; ++i)
        append(out[0], mark(token, layer, 0, i, false));
      for (std::uint32_t i = 0; i < spec.index_dim; ++i)
        append(out[1], mark(token, layer, 0, i, true));
    }
    return out;
  }
  void append_latent(std::size_t layer,
                     const LatentLayerView& view,
                     std::size_t row,
                     std::span<const std::uint32_t> tokens) const {
    const KvRowView& r = view.rows[row];
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      const std::vector<Image> images = latent_rows(layer, tokens.subspan(i, 1));
      const std::size_t slot = view.slot(r, r.length + i);
      std::memcpy(view.latent + slot * images[0].size(), images[0].data(), images[0].size());
      if (images.size() > 1)
        std::memcpy(view.index + slot * images[1].size(), images[1].data(), images[1].size());
    }
  }

  // The tail's rows are marks, and so is what a token adds to the sum.
  std::vector<Image> state(std::size_t layer, std::span<const std::uint32_t> tokens) const {
    const RecurrentSpec& spec = list[layer].recurrent;
    std::vector<Image> out(spec.n_value_heads > 0 ? 2 : 1);
    if (tokens.empty()) return out;
    for (std::uint32_t back = spec.conv_kernel - 1; back > 0; --back)
      for (std::uint32_t c = 0; c < spec.n_channels; ++c)
        append(out[0], back > tokens.size()
                           ? 0.0f
                           : mark(tokens[tokens.size() - back], layer, 0, c, false));
    std::vector<float> sum(n_sums(spec));
    for (const std::uint32_t token : tokens) add_token(layer, token, sum);
    const auto* bytes = reinterpret_cast<const std::byte*>(sum.data());
    if (!sum.empty()) out[1].assign(bytes, bytes + sum.size() * sizeof(float));
    return out;
  }
  static std::size_t n_sums(const RecurrentSpec& spec) {
    return std::size_t{spec.n_value_heads} * spec.value_dim * spec.key_dim;
  }
  static void add_token(std::size_t layer, std::uint32_t token, std::span<float> sum) {
    for (std::uint32_t i = 0; i < sum.size(); ++i)
      sum[i] = sum[i] * 0.5f + mark(token, layer, 1, i, true);
  }
  void step_state(std::size_t layer,
                  const RecurrentLayerView& view,
                  std::size_t row,
                  std::span<const std::uint32_t> tokens) const {
    const RecurrentRowView& r = view.rows[row];
    const std::size_t row_bytes = view.n_channels * size_of(view.conv_type);
    const std::size_t tail = view.conv_bytes();
    Image inputs(tail + tokens.size() * row_bytes);
    if (r.conv_from) std::memcpy(inputs.data(), r.conv_from, tail);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      Image input;
      for (std::uint32_t c = 0; c < view.n_channels; ++c)
        append(input, mark(tokens[i], layer, 0, c, false));
      std::memcpy(inputs.data() + tail + i * row_bytes, input.data(), row_bytes);
    }
    std::memcpy(r.conv_to, inputs.data() + tokens.size() * row_bytes, tail);
    if (view.n_value_heads == 0) return;
    const std::size_t n = n_sums(list[layer].recurrent);
    std::vector<float> sum(n);
    if (r.delta_from) std::memcpy(sum.data(), r.delta_from, n * sizeof(float));
    for (const std::uint32_t token : tokens) add_token(layer, token, sum);
    std::memcpy(r.delta_to, sum.data(), n * sizeof(float));
  }
};

// Empty when every plane of the state is what the naive model says, else what differs.
inline std::string difference(const Naive& naive,
                              const KvStore& store,
                              const KvState& state,
                              const Tokens& tokens) {
  if (state.length() != tokens.size()) return "length";
  const auto planes = store.planes(state);
  if (!planes) return planes.error().what;
  for (std::size_t layer = 0; layer < naive.list.size(); ++layer) {
    const KvLayerPlanes& got = planes->layers[layer];
    // A row that has just reached T may still be exact.
    const bool is_due_or_done = tokens.size() == naive.scheme.transition();
    const bool is_encoded = is_due_or_done ? got.signature.find(":bf16") == std::string::npos &&
                                                 naive.list[layer].is_attention()
                                           : naive.is_encoded(layer, tokens.size());
    const auto expected = naive.planes(layer, tokens, got.first_position, is_encoded);
    const std::string where = "layer " + std::to_string(layer) + " (" + got.signature + ") plane ";
    if (got.planes.size() != expected.size()) return where + "count";
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (got.planes[i].size_bytes() != expected[i].size()) return where + "size";
      if (!expected[i].empty() &&
          std::memcmp(got.planes[i].data(), expected[i].data(), expected[i].size()) != 0)
        return where + std::to_string(i);
    }
  }
  return "";
}

}  // namespace kvasir::kv
