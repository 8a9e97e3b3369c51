// Decoder: the forward pass of every family: embed, layers, final norm, head. What differs
// between families is in the DecoderConfig. Nothing here fails or allocates: the batch was checked,
// the scratch is large enough.
#pragma once

#include <cstdint>
#include <initializer_list>
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
  // Executor::replay of the batch that was forwarded last.
  void replay(const StepBatch& batch, std::span<const std::uint32_t> keep);

 private:
  void embed(std::span<const TokenId> tokens);
  void encode_input(const EncoderInputWeights& w, const StepBatch& batch);
  KvLayerView whole_rows(const AttentionSpec& a) const;
  void embed_per_layer(const PerLayerInputWeights& w, std::span<const TokenId> tokens);
  void mixer_block(std::size_t layer, const StepBatch& batch);
  void attention_block(std::size_t layer, const StepBatch& batch);
  void feed_forward_block(std::size_t layer);
  void per_layer_block(std::size_t layer);
  LogitsView head(std::span<const std::uint32_t> wanted);

  void attend(const AttentionSpec& a,
              const AttentionWeights& w,
              MatView qkv,
              const StepBatch& batch,
              const KvLayerView& kv,
              MatView out);
  void append_kv(const AttentionSpec& a,
                 const AttentionWeights& w,
                 MatView k,
                 MatView v,
                 const StepBatch& batch,
                 const KvLayerView& kv);
  void rotate(const AttentionSpec& a, MatView x, std::span<const std::uint32_t> positions);
  void rotate(std::uint32_t rope,
              std::uint32_t head_dim,
              MatView x,
              std::span<const std::uint32_t> positions);

  // decoder_latent.cpp
  void latent_block(std::size_t layer, const StepBatch& batch);
  MatView latent_query(const LatentAttentionSpec& a,
                       const LatentWeights& w,
                       ConstMatView in,
                       std::span<const std::uint32_t> positions);
  void append_latent(const LatentAttentionSpec& a,
                     const LatentWeights& w,
                     ConstMatView in,
                     std::span<const std::uint32_t> positions,
                     const LatentLayerView& kv);
  std::span<const std::uint32_t> select(const LatentAttentionSpec& a,
                                        const LatentWeights& w,
                                        ConstMatView in,
                                        std::span<const std::uint32_t> positions,
                                        const LatentLayerView& kv);
  static MatView roped_part(const LatentAttentionSpec& a, MatView q);

  void mlp(const MlpSpec& spec, const MlpWeights& w, ConstMatView in, MatView out);
  void route(const MoeSpec& moe, const MoeWeights& w, ConstMatView in);
  void experts(const MoeSpec& moe, const MoeWeights& w, ConstMatView in, MatView out);
  void add_experts_to_branch(const MoeSpec& moe, const LayerWeights& w);

  // decoder_recurrent.cpp
  void delta_block(std::size_t layer, const StepBatch& batch);
  void short_conv_block(std::size_t layer, const StepBatch& batch);
  void delta_scan(const DeltaSpec& d,
                  const DeltaWeights& w,
                  ConstMatView inputs,
                  ConstMatView beta_decay,
                  const RecurrentLayerView& state,
                  MatView out);
  void convolve(const ShortConvWeights& w,
                ConstMatView inputs,
                const RecurrentLayerView& state,
                MatView out);
  void note_tentative(const KvViews& kv);
  void record(std::size_t layer, std::initializer_list<ConstMatView> parts);

  void linear(const Linear& w, ConstMatView in, MatView out);
  void side_by_side(const SideBySide& parts, ConstMatView in, MatView out);
  std::span<const ops::LinearPart> parts_of(const SideBySide& parts);
  void rms_norm(const Vector& weight, ConstMatView in, MatView out) {
    rms_norm(weight, in, out, config_.norm_eps);
  }
  void rms_norm(const Vector& weight, ConstMatView in, MatView out, float eps);
  void norm(const Norm& w, ConstMatView in, MatView out);
  ConstMatView normed_or_residual(const Norm& w);
  void add_branch(const Norm& after);
  void settle();
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

  std::uint32_t n_tokens_ = 0;       // of the step in progress
  MatView residual_;                 // [n_tokens, hidden]
  MatView branch_;                   // [n_tokens, hidden]
  bool has_unadded_branch_ = false;  // residual_ lacks branch_, which the next norm adds
  std::vector<ops::LinearPart> parts_;
};

}  // namespace kvasir::model
