// Loading and running families whose attention or experts are their own, on the reference
// checkpoints: other dialects of the same weights, refusals (MOD-5), borrowed keys (KV-41), a row's
// own bits (DESIGN §5).
#include "model/families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "backend/ref/ref_device.h"
#include "base/file.h"
#include "base/half.h"
#include "model/detail/contiguous_kv.h"
#include "model/model.h"
#include "model/testing/checkpoint.h"
#include "model/testing/model_folder.h"

namespace kvasir::model {
namespace {

using backend::ref::RefMode;

class Families : public testing::TestWithParam<const char*> {};

TEST_P(Families, ChunkedEqualsWhole) {
  SKIP_WITHOUT(GetParam());
  for (const RefMode mode : {RefMode::oracle, RefMode::mirror}) {
    const Loaded loaded = load(golden_folder(GetParam()), mode);
    EXPECT_TRUE(same_bits(logits_of(loaded, {40}), logits_of(loaded, {7, 1, 24, 8})));
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Families,
                         testing::Values("gemma2",
                                         "gemma3",
                                         "gemma4",
                                         "gemma4-moe",
                                         "cohere2",
                                         "gpt-oss",
                                         "qwen3-next",
                                         "qwen3_5",
                                         "qwen3_5-moe",
                                         "lfm2"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(Gemma, RoundsItsEmbeddingScaleUnlessItRunsInF32_MOD22) {
  SKIP_WITHOUT("gemma3-hd64");
  const auto scale = [](RefMode mode) {
    return load(golden_folder("gemma3-hd64"), mode).model->config().embedding_scale;
  };
  EXPECT_EQ(scale(RefMode::oracle), std::sqrt(96.0f));
  EXPECT_EQ(scale(RefMode::mirror), 9.8125f);
}

TEST(Gemma, BorrowingLayersOwnNothing_KV41) {
  SKIP_WITHOUT("gemma4");
  const Loaded gemma = load(golden_folder("gemma4"));
  EXPECT_EQ(gemma.model->kv_list().size(), 3u);
  // Keys and values of 100 positions are read by all six layers and those of one are written by
  // three.
  const std::uint64_t narrow = 2 * 16, wide = 2 * 32, window = 24, all = 101;
  const std::uint64_t read = 4 * window * narrow + 2 * all * wide, written = 2 * narrow + wide;
  EXPECT_EQ(gemma.model->cost(1, 100).kv_bytes, 2 * (read + written) * 2);
}

TEST(Gemma, KeysThatABorrowerDoesNotNeedMayBeStored_MOD5) {
  SKIP_WITHOUT("gemma4");
  Checkpoint gemma("gemma4");
  gemma.tensors.push_back(
      {"model.layers.3.self_attn.k_proj.weight", "BF16", {32, 64}, std::string(4096, '\0')});
  EXPECT_EQ(gemma.load_error(), "no error");
  gemma.tensors.push_back({"model.layers.3.self_attn.sinks", "BF16", {4}, std::string(8, '\0')});
  EXPECT_NE(gemma.load_error().find("'model.layers.3.self_attn.sinks' is not part of this model"),
            std::string::npos);
}

TEST(Gemma, NamesWhatItMisses_MOD5) {
  SKIP_WITHOUT("gemma4");
  for (const char* const name :
       {"model.layers.0.layer_scalar", "model.layers.4.per_layer_projection.weight",
        "model.embed_tokens_per_layer.weight", "model.per_layer_projection_norm.weight",
        "model.layers.2.self_attn.v_proj.weight",
        "model.layers.1.pre_feedforward_layernorm.weight"}) {
    Checkpoint gemma("gemma4");
    gemma.drop(name);
    EXPECT_NE(gemma.load_error().find("'" + std::string(name) + "' is missing"), std::string::npos)
        << gemma.load_error();
  }
}

TEST(Gemma, NamesWhatItMissesOfItsExperts_MOD5) {
  SKIP_WITHOUT("gemma4-moe");
  for (const char* const name : {"model.layers.3.router.scale", "model.layers.0.experts.down_proj",
                                 "model.layers.5.router.per_expert_scale",
                                 "model.layers.5.post_feedforward_layernorm_2.weight"}) {
    Checkpoint gemma("gemma4-moe");
    gemma.drop(name);
    EXPECT_NE(gemma.load_error().find("'" + std::string(name) + "' is missing"), std::string::npos)
        << gemma.load_error();
  }
}

TEST(Gemma, TakesAWrappersPrefix_MOD4) {
  SKIP_WITHOUT("gemma4");
  Checkpoint gemma("gemma4");
  for (TestTensor& t : gemma.tensors) t.name.insert(5, ".language_model");
  gemma.tensors.push_back({"model.vision_tower.x", "BF16", {2}, std::string(4, '\0')});
  gemma.config = R"({"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
                     "vision_config": {"model_type": "gemma4_vision"}, "text_config": )" +
                 gemma.config + "}";
  const ModelFolder folder(gemma.config, gemma.tensors);
  EXPECT_TRUE(same_bits(logits_of(load(folder.path()), {20}),
                        logits_of(load(golden_folder("gemma4")), {20})));
}

// The rows (or, when stored inputs first, the columns) of one expert stack that `pick` chooses.
TestTensor part_of(const TestTensor& stack,
                   const std::string& name,
                   bool inputs_first,
                   const std::vector<std::uint64_t>& outputs) {
  const std::uint64_t n_in = stack.shape[inputs_first ? 1 : 2],
                      n_out = stack.shape[inputs_first ? 2 : 1];
  TestTensor out{name, stack.dtype, {stack.shape[0], outputs.size(), n_in}, ""};
  for (std::uint64_t e = 0; e < stack.shape[0]; ++e) {
    for (const std::uint64_t o : outputs) {
      for (std::uint64_t i = 0; i < n_in; ++i) {
        const std::uint64_t at = inputs_first ? i * n_out + o : o * n_in + i;
        out.bytes.append(stack.bytes, (e * n_in * n_out + at) * 2, 2);
      }
    }
  }
  return out;
}

std::vector<std::uint64_t> numbers(std::uint64_t begin, std::uint64_t n, std::uint64_t step) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < n; ++i) out.push_back(begin + i * step);
  return out;
}

// As converted files have them: gate, up and down apart, one stack each, rows along the inputs.
TEST(GptOss, TakesExpertsFusedOrApart_MOD34) {
  SKIP_WITHOUT("gpt-oss");
  Checkpoint gpt("gpt-oss");
  for (const std::string layer : {"0", "1", "2"}) {
    const std::string stem = "model.layers." + layer + ".mlp.experts.";
    const TestTensor gate_up = gpt.named(stem + "gate_up_proj"),
                     down = gpt.named(stem + "down_proj");
    TestTensor biases = gpt.named(stem + "gate_up_proj_bias"),
               down_bias = gpt.named(stem + "down_proj_bias");
    biases.shape = {4, 192, 1};
    for (const auto& [part, first] : {std::pair{"gate_proj", 0u}, {"up_proj", 1u}}) {
      gpt.tensors.push_back(part_of(gate_up, stem + part + ".weight", true, numbers(first, 96, 2)));
      TestTensor bias = part_of(biases, stem + part + ".bias", false, numbers(first, 96, 2));
      bias.shape = {4, 96};
      gpt.tensors.push_back(std::move(bias));
    }
    gpt.tensors.push_back(part_of(down, stem + "down_proj.weight", true, numbers(0, 64, 1)));
    down_bias.name = stem + "down_proj.bias";
    gpt.tensors.push_back(std::move(down_bias));
    for (const char* const name :
         {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"})
      gpt.drop(stem + name);
  }
  const ModelFolder folder(gpt.config, gpt.tensors);

  EXPECT_TRUE(same_bits(logits_of(load(folder.path()), {20}),
                        logits_of(load(golden_folder("gpt-oss")), {20})));
}

// Published files hold the experts in MXFP4, rows along the inputs; the same values written out as
// bf16, inputs first, give the same bits.
TEST(GptOss, TakesExpertsInMxfp4_MOD34) {
  SKIP_WITHOUT("gpt-oss");
  constexpr float kValues[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
  Checkpoint packed("gpt-oss"), written("gpt-oss");
  std::mt19937 rng(7);
  for (const std::string layer : {"0", "1", "2"}) {
    for (const auto& [part, n_out, n_in] :
         {std::tuple{"gate_up_proj", 192u, 64u}, {"down_proj", 64u, 96u}}) {
      const std::string stem = "model.layers." + layer + ".mlp.experts." + part;
      TestTensor blocks{stem + "_blocks", "U8", {4, n_out, n_in / 32, 16}, ""};
      TestTensor scales{stem + "_scales", "U8", {4, n_out, n_in / 32}, ""};
      std::string& dense = written.named(stem).bytes;
      for (std::uint32_t row = 0; row < 4 * n_out; ++row) {
        for (std::uint32_t i = 0; i < n_in; ++i) {
          if (i % 32 == 0) scales.bytes.push_back(static_cast<char>(120 + rng() % 3));
          if (i % 2 == 0) blocks.bytes.push_back(static_cast<char>(rng() & 0xff));
          const auto pair = static_cast<unsigned char>(blocks.bytes.back());
          const int exponent = static_cast<unsigned char>(scales.bytes.back()) - 127;
          const BFloat16 value =
              to_bf16(std::ldexp(kValues[i % 2 == 0 ? pair & 15 : pair >> 4], exponent));
          const std::size_t expert = row / n_out, out = row % n_out;
          std::memcpy(&dense[((expert * n_in + i) * n_out + out) * 2], &value, 2);
        }
      }
      packed.drop(stem);
      packed.tensors.push_back(std::move(blocks));
      packed.tensors.push_back(std::move(scales));
    }
  }
  const ModelFolder a(packed.config, packed.tensors), b(written.config, written.tensors);

  EXPECT_TRUE(same_bits(logits_of(load(a.path()), {20}), logits_of(load(b.path()), {20})));
}

TEST(GptOss, NamesWhatItMissesOrMisreads_MOD5) {
  SKIP_WITHOUT("gpt-oss");
  for (const char* const name :
       {"model.layers.1.self_attn.sinks", "model.layers.0.mlp.router.bias",
        "model.layers.2.mlp.experts.gate_up_proj_bias", "model.layers.0.self_attn.o_proj.bias",
        "model.layers.2.mlp.experts.down_proj"}) {
    Checkpoint gpt("gpt-oss");
    gpt.drop(name);
    EXPECT_NE(gpt.load_error().find("'" + std::string(name) + "' is missing"), std::string::npos)
        << gpt.load_error();
  }
  Checkpoint turned("gpt-oss");
  turned.named("model.layers.0.mlp.experts.gate_up_proj").shape = {4, 192, 64};
  EXPECT_NE(turned.load_error().find("'model.layers.0.mlp.experts.gate_up_proj' has shape "
                                     "[4, 192, 64], expected [4, 64, 192]"),
            std::string::npos)
      << turned.load_error();
}

TEST(Gemma, TakesExpertsFusedOrApart_MOD25) {
  SKIP_WITHOUT("gemma4-moe");
  Checkpoint gemma("gemma4-moe");
  for (const std::string layer : {"0", "1", "2", "3", "4", "5"}) {
    const std::string from = "model.layers." + layer + ".experts.", to = from + "switch_glu.";
    const TestTensor gate_up = gemma.named(from + "gate_up_proj");
    gemma.tensors.push_back(part_of(gate_up, to + "gate_proj.weight", false, numbers(0, 32, 1)));
    gemma.tensors.push_back(part_of(gate_up, to + "up_proj.weight", false, numbers(32, 32, 1)));
    gemma.named(from + "down_proj").name = to + "down_proj.weight";
    gemma.drop(from + "gate_up_proj");
  }
  const ModelFolder folder(gemma.config, gemma.tensors);

  EXPECT_TRUE(same_bits(logits_of(load(folder.path()), {20}),
                        logits_of(load(golden_folder("gemma4-moe")), {20})));
}

using Row = std::vector<double>;

TestTensor random_tensor(const std::string& name,
                         const std::vector<std::uint64_t>& shape,
                         double around) {
  std::mt19937 rng(static_cast<unsigned>(std::hash<std::string>()(name)));
  TestTensor out{name, "F32", shape, ""};
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n *= d;
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto x = static_cast<float>(around + std::normal_distribution<double>(0, 0.3)(rng));
    out.bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  return out;
}

// Plain f64 arithmetic over the tensors of a checkpoint.
struct ByHand {
  Row values(const std::string& name) const {
    for (const TestTensor& t : tensors) {
      if (t.name != name) continue;
      std::vector<float> out(t.bytes.size() / sizeof(float));
      std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
      return {out.begin(), out.end()};
    }
    return {};
  }
  Row linear(const std::string& name, const Row& x) const {
    const Row w = values(name + ".weight");
    Row out = values(name + ".bias");
    out.resize(w.size() / x.size());
    for (std::size_t o = 0; o < out.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) out[o] += w[o * x.size() + i] * x[i];
    }
    return out;
  }
  Row layer_norm(const std::string& name, Row x) const {
    const Row w = values(name + ".weight"), b = values(name + ".bias");
    const auto n = static_cast<double>(x.size());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double variance = 0;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i];
    return x;
  }
  std::vector<TestTensor> tensors;
};

// It has no reference checkpoint. A lone token attends to its own value, so that one layer can be
// worked out by hand.
TEST(Starcoder2, OneTokenIsWhatItsFormulaSays) {
  ByHand hand;
  const auto add = [&](const std::string& name, std::uint64_t n_out, std::uint64_t n_in) {
    hand.tensors.push_back(random_tensor(name + ".weight", {n_out, n_in}, 0));
    if (name.find("embed") == std::string::npos)
      hand.tensors.push_back(random_tensor(name + ".bias", {n_out}, 0));
  };
  const auto add_norm = [&](const std::string& name) {
    hand.tensors.push_back(random_tensor(name + ".weight", {16}, 1));
    hand.tensors.push_back(random_tensor(name + ".bias", {16}, 0));
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens", 20, 16);
  for (const char* const norm : {"input_layernorm", "post_attention_layernorm"})
    add_norm(layer + norm);
  add_norm("model.norm");
  for (const char* const part : {"q_proj", "k_proj", "v_proj", "o_proj"})
    add(layer + "self_attn." + part, 16, 16);
  add(layer + "mlp.c_fc", 24, 16);
  add(layer + "mlp.c_proj", 16, 24);
  const ModelFolder folder(
      R"({"architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "hidden_size": 16,
          "vocab_size": 20, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1,
          "intermediate_size": 24, "max_position_embeddings": 256, "norm_epsilon": 1e-5})",
      hand.tensors);
  const auto plus = [](Row a, const Row& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };

  const Row table = hand.values("model.embed_tokens.weight");
  Row x(table.begin() + 7 * 16, table.begin() + 8 * 16);
  const Row value =
      hand.linear(layer + "self_attn.v_proj", hand.layer_norm(layer + "input_layernorm", x));
  x = plus(x, hand.linear(layer + "self_attn.o_proj", value));
  Row inner =
      hand.linear(layer + "mlp.c_fc", hand.layer_norm(layer + "post_attention_layernorm", x));
  for (double& v : inner)
    v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  x = hand.layer_norm("model.norm", plus(x, hand.linear(layer + "mlp.c_proj", inner)));
  const Row want = hand.linear("model.embed_tokens", x);

  testing::internal::CaptureStderr();
  const Loaded star = load(folder.path());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("untested family: starcoder2"),
            std::string::npos);
  auto kv =
      *ContiguousKv::make(*star.device, star.model->kv_list(), {.n_rows = 1, .max_tokens = 8});
  const TokenId token = 7;
  const std::uint32_t one = 1, zero = 0;
  const auto logits =
      star.model->forward({{&token, 1}, {&zero, 1}, kv.begin({&one, 1}), {&zero, 1}});
  ASSERT_TRUE(logits) << logits.error().what;
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(logits->row(0)[i], want[i], 1e-5) << i;
}

TEST(Cohere2, HasOneNormALayer_MOD32) {
  SKIP_WITHOUT("cohere2");
  Checkpoint cohere("cohere2");
  cohere.tensors.push_back(
      {"model.layers.0.post_attention_layernorm.weight", "BF16", {64}, std::string(128, '\0')});
  EXPECT_NE(
      cohere.load_error().find("'model.layers.0.post_attention_layernorm.weight' is not part"),
      std::string::npos);
}

}  // namespace
}  // namespace kvasir::model
