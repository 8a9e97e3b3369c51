// Device: one backend instance: memory, repacked weights, and the table of operations. Everything
// above backend/ sees only this. One thread (the engine's) calls it; the backend may fork inside an
// op. Ops never fail: shapes are checked when a graph is built, memory is reserved before a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/weight_matrix.h"
#include "tensor/buffer.h"

namespace kvasir::ops {

struct OpTable;

// A weight in the backend's own layout. The backend that packed it casts it back; nobody else looks
// inside.
class PackedMatrix {
 public:
  PackedMatrix(std::uint32_t n_out, std::uint32_t n_in) : n_out_(n_out), n_in_(n_in) {}
  virtual ~PackedMatrix() = default;
  std::uint32_t n_out() const noexcept { return n_out_; }
  std::uint32_t n_in() const noexcept { return n_in_; }
  virtual std::size_t size_bytes() const noexcept = 0;

 private:
  std::uint32_t n_out_, n_in_;
};

struct PackOptions {
  // Keep dense weights in f32 and feed activations unrounded: routers, and models whose weights are
  // f32 (MOD-6).
  bool exact_f32 = false;
  // Used by linear, linear_group and gated_linear alone: a device of several parts may split its
  // outputs among them.
  bool may_split = false;
};

// device: what ops read and write: matrices, KV planes, constants. host: what the caller reads and
// writes as well, and ops do not. A host backend's are the same memory.
enum class MemoryKind : std::uint8_t { device, host };

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const noexcept = 0;  // "ref", "ref:mirror", "cpu"
  virtual std::string numerics_id() const = 0;         // part of every cache identity (CACHE-32)
  // For people: the name with the instruction set in use, "cpu-avx512". Not an identity:
  // instruction sets share a numerics_id when they give the same bits.
  virtual std::string label() const { return std::string(name()); }
  virtual const OpTable& ops() const noexcept = 0;
  virtual int n_threads() const noexcept { return 1; }
  // Rounds no activation to bf16, whatever a weight was packed with: the oracle.
  virtual bool is_exact() const noexcept { return false; }

  // Whether the caller may read and write device memory as its own.
  virtual bool shares_host_memory() const noexcept { return true; }

  // Zeroed, aligned to 64 bytes or more. Errc::capacity when the system refuses.
  virtual Result<Buffer> allocate(std::size_t size_bytes, MemoryKind kind = MemoryKind::device) = 0;
  // The same for blocks of KV state, each of which n_heads equal parts make up, heads that are
  // always read by themselves. 0: none are.
  virtual Result<Buffer> allocate_blocks(std::size_t n_blocks,
                                         std::size_t block_bytes,
                                         std::uint32_t /*n_heads*/) {
    return allocate(n_blocks * block_bytes, MemoryKind::device);
  }
  // Repacks a stored weight; serves `linear` and `embed` alike (tied embeddings exist once). The
  // source is not kept.
  virtual Result<std::unique_ptr<PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                     PackOptions options) = 0;
  // Between any two places in memory of either kind, in order with ops; who reads the copy on the
  // host calls synchronize() first. Host backends: memcpy.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept = 0;

  // Ops between the two belong to one step: the host values that they name (ids, positions, rows)
  // stay as they are until end_step(), which returns when all of them have run. Ops outside a step
  // have read such values when they return. Errc::device: what failed of the work so far.
  virtual void begin_step(std::size_t /*n_tokens*/) noexcept {}
  virtual Status end_step() noexcept { return {}; }
  virtual Status synchronize() noexcept { return {}; }

  // end_step() in two, for a host that prepares the next step meanwhile: its work is on its way,
  // and the named host values may change; then, of the oldest step that was submitted and not
  // awaited, the work has run and what it copied to the host may be read. At most two steps are on
  // their way. By default a step is awaited in one, so nothing runs behind.
  virtual void submit_step() noexcept {}
  virtual Status await_step() noexcept { return end_step(); }
  virtual bool runs_behind() const noexcept { return false; }
  // How long steps have been at work on the device, of those awaited; 0 where nobody counts.
  virtual double busy_seconds() const noexcept { return 0; }
};

}  // namespace kvasir::ops
