// Models with recurrent layers as llama.cpp's converter writes them (MOD-52): the same model as the
// hub folder they come from.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/half.h"
#include "model/testing/checkpoint.h"
#include "model/testing/gguf_file.h"

namespace kvasir::model {
namespace {

using Names = std::map<std::string, std::string, std::less<>>;

// "model.layers.3.a.b.weight" → "blk.3." + names["a.b"] + ".weight".
std::string gguf_name(const std::string& name, const Names& names) {
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t end = name.rfind('.');
  if (!name.starts_with(kLayers)) return names.at(name.substr(0, end)) + name.substr(end);
  const std::size_t dot = name.find('.', kLayers.size());
  const std::string layer = name.substr(kLayers.size(), dot - kLayers.size());
  return "blk." + layer + "." + names.at(name.substr(dot + 1, end - dot - 1)) + name.substr(end);
}

bool same_model(const std::filesystem::path& a, std::string_view golden) {
  return same_bits(logits_of(load(a), {20}), logits_of(load(golden_folder(golden)), {20}));
}

void add_common(GgufFile& file, std::uint32_t n_layers, float eps, float theta) {
  file.count("block_count", n_layers)
      .count("context_length", 1024)
      .count("embedding_length", 64)
      .count("attention.head_count", 4)
      .real("attention.layer_norm_rms_epsilon", eps)
      .real("rope.freq_base", theta);
}

TEST(RecurrentGguf, Lfm2IsTheHubFoldersModel_MOD33) {
  SKIP_WITHOUT("lfm2");
  const Names names = {{"model.embed_tokens", "token_embd"},
                       {"model.embedding_norm", "token_embd_norm"},
                       {"operator_norm", "attn_norm"},
                       {"ffn_norm", "ffn_norm"},
                       {"self_attn.q_proj", "attn_q"},
                       {"self_attn.k_proj", "attn_k"},
                       {"self_attn.v_proj", "attn_v"},
                       {"self_attn.out_proj", "attn_output"},
                       {"self_attn.q_layernorm", "attn_q_norm"},
                       {"self_attn.k_layernorm", "attn_k_norm"},
                       {"feed_forward.w1", "ffn_gate"},
                       {"feed_forward.w2", "ffn_down"},
                       {"feed_forward.w3", "ffn_up"},
                       {"conv.conv", "shortconv.conv"},
                       {"conv.in_proj", "shortconv.in_proj"},
                       {"conv.out_proj", "shortconv.out_proj"}};
  GgufFile file("lfm2");
  add_common(file, 3, 1e-5f, 1e6f);
  file.count("feed_forward_length", 256)
      .counts("attention.head_count_kv", {0, 2, 0})
      .count("shortconv.l_cache", 3);
  for (TestTensor t : Checkpoint("lfm2").tensors) {
    if (t.name.ends_with("conv.conv.weight")) t.shape = {64, 3};
    file.tensor(gguf_name(t.name, names), t);
  }
  EXPECT_TRUE(same_model(file.write(), "lfm2"));
}

std::vector<float> values_of(const TestTensor& t) {
  std::vector<float> out;
  for (std::size_t i = 0; i < t.bytes.size(); i += 2) {
    BFloat16 half;
    std::memcpy(&half, &t.bytes[i], 2);
    out.push_back(to_f32(half));
  }
  return out;
}

TestTensor in_f32(const TestTensor& t, const std::vector<float>& values) {
  TestTensor out{t.name, "F32", t.shape, ""};
  out.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return out;
}

// Rows of in_proj_qkvz, 16 a key or value and 2 values a key: all of [q, k, v] or all of z.
TestTensor ungrouped(const TestTensor& t, bool z) {
  constexpr std::size_t kRow = 64 * 2, kGroup = 96 * kRow;
  TestTensor out{t.name, t.dtype, {z ? 64u : 128u, 64}, ""};
  const auto take = [&](std::size_t first, std::size_t n) {
    for (std::size_t group = 0; group < 2; ++group)
      out.bytes += t.bytes.substr(group * kGroup + first * kRow, n * kRow);
  };
  if (z) {
    take(64, 32);
  } else {
    take(0, 16);
    take(16, 16);
    take(32, 32);
  }
  return out;
}

void add_qwen3_next(GgufFile& file, const TestTensor& t, const Names& names) {
  const std::string layer = "blk." + t.name.substr(std::string("model.layers.").size(), 1) + ".";
  if (t.name.ends_with("A_log")) {
    std::vector<float> a = values_of(t);
    for (float& x : a) x = static_cast<float>(-std::exp(double(x)));
    file.tensor(layer + "ssm_a", in_f32(t, a));
  } else if (t.name.ends_with("dt_bias")) {
    file.tensor(layer + "ssm_dt.bias", t);
  } else if (t.name.ends_with("in_proj_qkvz.weight")) {
    file.tensor(layer + "attn_qkv.weight", ungrouped(t, false));
    file.tensor(layer + "attn_gate.weight", ungrouped(t, true));
  } else if (t.name.ends_with("conv1d.weight")) {
    TestTensor taps = t;
    taps.shape = {128, 4};
    file.tensor(gguf_name(t.name, names), taps);
  } else if (t.name.ends_with("shared_expert_gate.weight")) {
    TestTensor gate = t;
    gate.shape = {64};
    file.tensor(gguf_name(t.name, names), gate);
  } else if (t.name.ends_with("norm.weight") && !t.name.ends_with("linear_attn.norm.weight")) {
    std::vector<float> weight = values_of(t);
    for (float& x : weight) x += 1.0f;
    file.tensor(gguf_name(t.name, names), in_f32(t, weight));
  } else {
    file.tensor(gguf_name(t.name, names), t);
  }
}

// Experts become stacks. exp(A_log) was rounded, so that the bits are not the same; the logits are
// within what this rounding makes of them.
TEST(RecurrentGguf, Qwen3NextIsTheHubFoldersModel_MOD19) {
  SKIP_WITHOUT("qwen3-next");
  const Names names = {{"model.embed_tokens", "token_embd"},
                       {"model.norm", "output_norm"},
                       {"lm_head", "output"},
                       {"input_layernorm", "attn_norm"},
                       {"post_attention_layernorm", "post_attention_norm"},
                       {"self_attn.q_proj", "attn_q"},
                       {"self_attn.k_proj", "attn_k"},
                       {"self_attn.v_proj", "attn_v"},
                       {"self_attn.o_proj", "attn_output"},
                       {"self_attn.q_norm", "attn_q_norm"},
                       {"self_attn.k_norm", "attn_k_norm"},
                       {"linear_attn.conv1d", "ssm_conv1d"},
                       {"linear_attn.in_proj_ba", "ssm_ba"},
                       {"linear_attn.norm", "ssm_norm"},
                       {"linear_attn.out_proj", "ssm_out"},
                       {"mlp.gate", "ffn_gate_inp"},
                       {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                       {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                       {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                       {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
  GgufFile file("qwen3next");
  add_common(file, 4, 1e-6f, 1e4f);
  file.count("feed_forward_length", 96)
      .count("attention.head_count_kv", 2)
      .count("attention.key_length", 16)
      .count("attention.value_length", 16)
      .count("rope.dimension_count", 4)
      .count("full_attention_interval", 4)
      .count("ssm.conv_kernel", 4)
      .count("ssm.state_size", 16)
      .count("ssm.group_count", 2)
      .count("ssm.time_step_rank", 4)
      .count("ssm.inner_size", 64)
      .count("expert_count", 8)
      .count("expert_used_count", 2)
      .count("expert_feed_forward_length", 48)
      .count("expert_shared_feed_forward_length", 48);
  Checkpoint hub("qwen3-next");
  for (const std::string layer : {"0", "1", "2", "3"}) {
    for (const char* const part : {"gate", "up", "down"}) {
      TestTensor stack{"", "BF16", {8, 48, 64}, ""};
      if (std::string_view(part) == "down") stack.shape = {8, 64, 48};
      for (int e = 0; e < 8; ++e) {
        const std::string name = "model.layers." + layer + ".mlp.experts." + std::to_string(e) +
                                 "." + part + "_proj.weight";
        stack.bytes += hub.named(name).bytes;
        hub.drop(name);
      }
      file.tensor("blk." + layer + ".ffn_" + part + "_exps.weight", stack);
    }
  }
  for (const TestTensor& t : hub.tensors) add_qwen3_next(file, t, names);

  const std::vector<float> got = logits_of(load(file.write()), {20}),
                           want = logits_of(load(golden_folder("qwen3-next")), {20});

  ASSERT_EQ(got.size(), want.size());
  double largest = 0.0, worst = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(double(want[i])));
    worst = std::max(worst, std::abs(double(got[i]) - double(want[i])));
  }
  EXPECT_LE(worst, 1e-5 * largest);
}

}  // namespace
}  // namespace kvasir::model
