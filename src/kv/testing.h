// For tests of whatever holds KV state: a host memory that counts what it copies, and marks that
// say whose position a slot holds, written and checked through a step's views. No kernels but the
// scalar kv_convert. Not used by the program itself.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "codec/kv_codec.h"
#include "kv/kv_store.h"
#include "ops/device.h"
#include "ops/op_table.h"

namespace kvasir::kv {

class TestDevice final : public ops::Device {
 public:
  TestDevice();
  void set_convert(ops::Op<ops::KvConvertArgs> op) { table_.kv_convert = op; }
  std::size_t copied_bytes = 0;
  std::size_t max_bytes = SIZE_MAX;  // an allocation beyond it is refused

  std::string_view name() const noexcept override { return "test"; }
  std::string numerics_id() const override { return "test"; }
  const ops::OpTable& ops() const noexcept override { return table_; }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind) override {
    if (size_bytes > max_bytes) return Error{Errc::capacity, "memory"};
    auto* data = static_cast<std::byte*>(std::calloc(size_bytes ? size_bytes : 1, 1));
    return Buffer(data, size_bytes,
                  [](void*, std::byte* p, std::size_t) noexcept { std::free(p); });
  }
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix&,
                                                  ops::PackOptions) override {
    return unsupported("pack");
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    copied_bytes += size_bytes;
    std::memcpy(to, from, size_bytes);
  }

 private:
  ops::OpTable table_;
};

// A value that says where it belongs: token id, layer, head, element and side; bf16, within ±1.
inline float mark(
    std::uint32_t token, std::size_t layer, std::uint32_t head, std::uint32_t i, bool is_v) {
  std::uint32_t h = token * 2654435761u + static_cast<std::uint32_t>(layer) * 40503u;
  h ^= (head * 7919u + i * 104729u + (is_v ? 15485863u : 0u)) * 2246822519u;
  return to_f32(to_bf16(static_cast<float>(h >> 16) / 32768.0f - 1.0f));
}

// Writes or checks the marks of position p (of a row whose token there is `token`) in every layer,
// in the form the row has there; bf16 planes.
enum class Marks : bool { write, check };

// One row of a layer: exact bf16, or encoded.
inline bool mark_exact(std::byte* at, std::span<const float> values, Marks what) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 bits = to_bf16(values[i]);
    if (what == Marks::write)
      std::memcpy(at + 2 * i, &bits, 2);
    else if (std::memcmp(at + 2 * i, &bits, 2) != 0)
      return false;
  }
  return true;
}

inline bool mark_encoded(const KvEncodedSide& side,
                         std::size_t index,
                         std::span<const float> values,
                         Marks what) {
  const auto dim = static_cast<std::uint32_t>(values.size());
  if (what == Marks::write) {
    codec::encode_row(side.codec, values.data(), dim, side.row(index));
    return true;
  }
  std::vector<std::byte> expected(4096);
  codec::KvRow row;
  for (std::size_t part = 0; part < codec::kKvRowParts; ++part)
    row.planes[part] = expected.data() + part * 1024;
  codec::encode_row(side.codec, values.data(), dim, row);
  for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
    const std::size_t bytes = side.row_bytes[part];
    if (bytes > 0 && std::memcmp(side.row(index).planes[part], row.planes[part], bytes) != 0)
      return false;
  }
  return true;
}

inline bool mark_position(
    const KvViews& all, std::size_t row, std::uint32_t p, std::uint32_t token, Marks what) {
  for (std::size_t l = 0; l < all.size(); ++l) {
    const KvLayerView& view = all.attention[l];
    if (view.n_kv_heads == 0) continue;  // of another kind
    const KvRowView& r = view.rows[row];
    if (p < r.first_position) continue;
    for (std::uint32_t head = 0; head < view.n_kv_heads; ++head) {
      const std::size_t index =
          view.row_index(r.blocks[p / view.block_tokens], head, p % view.block_tokens);
      for (const bool is_v : {false, true}) {
        std::vector<float> values(view.head_dim);
        for (std::uint32_t i = 0; i < view.head_dim; ++i) values[i] = mark(token, l, head, i, is_v);
        const bool same =
            r.is_encoded
                ? mark_encoded(is_v ? view.v_encoded : view.k_encoded, index, values, what)
                : mark_exact((is_v ? view.v : view.k) + index * view.head_dim * 2, values, what);
        if (!same) return false;
      }
    }
  }
  return true;
}

// kv_convert of bf16 planes by the scalar codecs.
inline void convert_rows(ops::Device&, const ops::KvConvertArgs& a) noexcept {
  std::vector<float> values(a.kv.head_dim);
  for (std::uint32_t p = a.begin; p < a.end; ++p) {
    for (std::uint32_t head = 0; head < a.kv.n_kv_heads; ++head) {
      const std::uint32_t block = p / a.kv.block_tokens, slot = p % a.kv.block_tokens;
      const std::size_t to = a.kv.row_index(a.to[block], head, slot);
      for (const bool is_v : {false, true}) {
        const std::byte* from = (is_v ? a.kv.v : a.kv.k) + a.kv.offset(a.from[block], head, slot);
        for (std::uint32_t i = 0; i < a.kv.head_dim; ++i) {
          BFloat16 bits;
          std::memcpy(&bits, from + 2 * i, 2);
          values[i] = to_f32(bits);
        }
        const KvEncodedSide& side = is_v ? a.kv.v_encoded : a.kv.k_encoded;
        codec::encode_row(side.codec, values.data(), a.kv.head_dim, side.row(to));
      }
    }
  }
}

inline TestDevice::TestDevice() { table_.kv_convert = convert_rows; }

}  // namespace kvasir::kv
