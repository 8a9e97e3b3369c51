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
#include "tensor/kv_views.h"

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

  // The step that feeds n_new[row] tokens of each row, rows one after another; valid until the next
  // call. A row that feeds nothing has no place in the step. Recurrent states are stepped in place:
  // a step that ran has to be committed.
  KvViews begin(std::span<const std::uint32_t> n_new);
  void commit() noexcept;  // what begin() announced is now part of the rows
  // Of it the first keep[row] tokens of each row; recurrent states are the caller's to step back.
  void commit(std::span<const std::uint32_t> keep) noexcept;
  std::uint32_t length(std::uint32_t row) const noexcept { return lengths_[row]; }

 private:
  Status add_attention(ops::Device& device, const KvLayerSpec& spec);
  Status add_latent(ops::Device& device, const LatentSpec& spec);
  Status add_recurrent(ops::Device& device, const RecurrentSpec& spec);
  Result<std::byte*> allocate(ops::Device& device, std::size_t row_bytes);

  ContiguousKvShape shape_;
  std::vector<Buffer> planes_;
  std::vector<KvLayerView> attention_;
  std::vector<LatentLayerView> latent_;
  std::vector<RecurrentLayerView> recurrent_;
  std::vector<std::vector<RecurrentRowView>> states_;  // of each layer: where its rows' states are
  std::vector<std::vector<RecurrentRowView>> steps_;   // the same of the rows in the step
  std::vector<std::vector<BlockId>> blocks_;           // of each row
  std::vector<std::uint32_t> lengths_, n_new_;
  std::vector<KvRowView> rows_;
};

}  // namespace kvasir::model
