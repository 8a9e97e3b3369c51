// Decoder: the forward pass of every family: embed, layers, final norm, head. What differs
// between families is in the DecoderConfig. Nothing here fails or allocates: the batch was checked,
// the scratch is large enough.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/executor.h"
#include "model/decoder_config.h"
#include "model/detail/decoder_weights.h"
#include "model/detail/rope.h"
#include "model/detail/scratch.h"
#include "ops/op_table.h"

namespace kvasir::model {

class Decoder {
 public:
  Decoder(ops::Device& device,
          const DecoderConfig& config,
          const DecoderWeights& weights,
          const std::vector<RopeTable>& ropes,
          std::span<const std::uint32_t> kv_entries,
          Scratch& scratch)
      : device_(device),
        ops_(device.ops()),
        config_(config),
        weights_(weights),
        ropes_(ropes),
        kv_entries_(kv_entries),
        scratch_(scratch) {}

  LogitsView forward(const StepBatch& batch);

 private:
  void embed(std::span<const TokenId> tokens);
  void encode_input(const EncoderInputWeights& w, const StepBatch& batch);
  KvLayerView whole_rows(const AttentionSpec& a) const;
  void embed_per_layer(const PerLayerInputWeights& w, std::span<const TokenId> tokens);
  void attention_block(std::size_t layer, const StepBatch& batch);
  void feed_forward_block(std::size_t layer);
  void per_layer_block(std::size_t layer);
  LogitsView head(std::span<const std::uint32_t> wanted);

  void append_kv(const AttentionSpec& a,
                 const AttentionWeights& w,
                 MatView k,
                 MatView v,
                 const StepBatch& batch,
                 const KvLayerView& kv);
  void rotate(const AttentionSpec& a, MatView x, std::span<const std::uint32_t> positions);
  void mlp(const MlpSpec& spec, const MlpWeights& w, ConstMatView in, MatView out);
  void route(const MoeSpec& moe, const MoeWeights& w, ConstMatView in);
  void experts(const MoeSpec& moe, const MoeWeights& w, ConstMatView in, MatView out);
  void add_experts_to_branch(const MoeSpec& moe, const LayerWeights& w);

  void linear(const Linear& w, ConstMatView in, MatView out);
  void side_by_side(const SideBySide& parts, ConstMatView in, MatView out);
  void rms_norm(const Vector& weight, ConstMatView in, MatView out);
  void norm(const Norm& w, ConstMatView in, MatView out);
  ConstMatView normed_or_residual(const Norm& w);
  void add_branch(const Norm& after);
  float inverse_root_of_hidden() const noexcept;
  MatView first_rows(MatView m, std::uint32_t n_cols) const {
    return m.rows(0, n_tokens_).columns(0, n_cols);
  }

  ops::Device& device_;
  const ops::OpTable& ops_;
  const DecoderConfig& config_;
  const DecoderWeights& weights_;
  const std::vector<RopeTable>& ropes_;
  std::span<const std::uint32_t> kv_entries_;  // [n_layers], as kv_entries_of()
  Scratch& scratch_;

  std::uint32_t n_tokens_ = 0;  // of the step in progress
  MatView residual_;            // [n_tokens, hidden]
  MatView branch_;              // [n_tokens, hidden]
};

}  // namespace kvasir::model
