// For tests of whatever holds KV state: a host memory that counts what it copies, and marks that
// say whose position a slot holds, written and checked through a step's views. No kernels. Not used
// by the program itself.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kv/kv_store.h"
#include "ops/device.h"
#include "ops/op_table.h"

namespace kvasir::kv {

class TestDevice final : public ops::Device {
 public:
  std::size_t copied_bytes = 0;
  std::size_t max_bytes = SIZE_MAX;  // an allocation beyond it is refused

  std::string_view name() const noexcept override { return "test"; }
  std::string numerics_id() const override { return "test"; }
  const ops::OpTable& ops() const noexcept override { return table_; }
  Result<Buffer> allocate(std::size_t size_bytes) override {
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

// A value that says where it belongs: token id, layer, head, element and side.
inline std::uint16_t mark(
    std::uint32_t token, std::size_t layer, std::uint32_t head, std::uint32_t i, bool is_v) {
  std::uint32_t h = token * 2654435761u + static_cast<std::uint32_t>(layer) * 40503u;
  h ^= (head * 7919u + i * 104729u + (is_v ? 15485863u : 0u)) * 2246822519u;
  return static_cast<std::uint16_t>((h >> 13) | 1u);
}

// Writes or checks the marks of position p (of a row whose token there is `token`) in every layer;
// bf16 planes.
enum class Marks : bool { write, check };
inline bool mark_position(std::span<const KvLayerView> views,
                          std::size_t row,
                          std::uint32_t p,
                          std::uint32_t token,
                          Marks what) {
  for (std::size_t l = 0; l < views.size(); ++l) {
    const KvLayerView& view = views[l];
    const KvRowView& r = view.rows[row];
    if (p < r.first_position) continue;
    for (std::uint32_t head = 0; head < view.n_kv_heads; ++head) {
      for (std::uint32_t i = 0; i < view.head_dim; ++i) {
        const std::size_t at =
            view.offset(r.blocks[p / view.block_tokens], head, p % view.block_tokens) + 2 * i;
        const std::uint16_t k = mark(token, l, head, i, false), v = mark(token, l, head, i, true);
        if (what == Marks::write) {
          std::memcpy(view.k + at, &k, 2);
          std::memcpy(view.v + at, &v, 2);
        } else if (std::memcmp(view.k + at, &k, 2) != 0 || std::memcmp(view.v + at, &v, 2) != 0) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace kvasir::kv
