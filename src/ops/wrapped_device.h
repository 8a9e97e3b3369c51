// WrappedDevice: a Device in front of another one that forwards everything; a check replaces single
// ops of its table. Used to plant faults, to run two backends side by side, to follow another
// order. Same thread rule as Device.
#pragma once

#include <memory>
#include <string>

#include "ops/op_table.h"

namespace kvasir::ops {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(Device& inner);  // which outlives it
  explicit WrappedDevice(std::unique_ptr<Device> inner);

  std::string_view name() const noexcept override { return inner_.name(); }
  std::string numerics_id() const override { return inner_.numerics_id(); }
  std::string label() const override { return inner_.label(); }
  const OpTable& ops() const noexcept override { return table_; }
  int n_threads() const noexcept override { return inner_.n_threads(); }
  bool is_exact() const noexcept override { return inner_.is_exact(); }
  bool shares_host_memory() const noexcept override { return inner_.shares_host_memory(); }
  Result<Buffer> allocate(std::size_t size_bytes, MemoryKind kind) override {
    return inner_.allocate(size_bytes, kind);
  }
  Result<Buffer> allocate_blocks(std::size_t n_blocks,
                                 std::size_t block_bytes,
                                 std::uint32_t n_heads) override {
    return inner_.allocate_blocks(n_blocks, block_bytes, n_heads);
  }
  Result<std::unique_ptr<PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                             PackOptions options) override {
    return inner_.pack(weight, options);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    inner_.copy(to, from, size_bytes);
  }
  void begin_step(std::size_t n_tokens) noexcept override { inner_.begin_step(n_tokens); }
  Status end_step() noexcept override { return inner_.end_step(); }
  // submit_step() and await_step() are the defaults: checks see one step at a time.
  Status synchronize() noexcept override { return inner_.synchronize(); }

  Device& inner() noexcept { return inner_; }

 protected:
  // Forwards every op; moe_experts and head_linear are compositions, so that wrapped ops are seen
  // inside them; moe_experts only where the host can read the routing.
  OpTable table_;

 private:
  std::unique_ptr<Device> owned_;  // null where another owns it
  Device& inner_;
};

}  // namespace kvasir::ops
