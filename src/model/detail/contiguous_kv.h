// KV state for checks and tests: each row has its own run of consecutive blocks in one pool a
// layer. The engine uses kv/ instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "contract/kv_list.h"
#include "ops/device.h"
#include "tensor/buffer.h"
#include "tensor/kv_view.h"

namespace kvasir::model {

struct ContiguousKvShape {
  std::uint32_t n_rows = 1;
  std::uint32_t max_tokens = 0;  // of a row
  std::uint32_t block_tokens = 64;
  DType type = DType::f32;
};

class ContiguousKv {
 public:
  static Result<ContiguousKv> make(ops::Device& device,
                                   const KvList& list,
                                   const ContiguousKvShape& shape);

  // The step that feeds n_new[row] tokens of each row, rows one after another: one view a layer,
  // valid until the next call. A row that feeds nothing has no place in the step.
  std::span<const KvLayerView> begin(std::span<const std::uint32_t> n_new);
  void commit() noexcept;  // what begin() announced is now part of the rows
  std::uint32_t length(std::uint32_t row) const noexcept { return lengths_[row]; }

 private:
  std::vector<Buffer> planes_;  // k and v of each layer
  std::vector<KvLayerView> layers_;
  std::vector<std::vector<BlockId>> blocks_;  // of each row
  std::vector<std::uint32_t> lengths_, n_new_;
  std::vector<KvRowView> rows_;
};

}  // namespace kvasir::model
