// Latent attention in whole models (MOD-35, 36): what config.json says, which tensors there are and
// in which forms, which positions a sparse index lets a query attend, what a step costs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"
#include "model/families.h"
#include "model/testing/checkpoint.h"
#include "ops/wrapped_device.h"

namespace kvasir::model {
namespace {

using backend::ref::RefMode;

constexpr const char* kDense = "deepseek-v3";
constexpr const char* kSparse = "glm-moe-dsa";  // top 32

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Result<DecoderConfig> describe(const std::string& config) {
  const ModelFolder folder(config);
  const auto files = formats::ModelFiles::open(folder.path());
  if (!files) return files.error();
  return describe_model(*files, 0);
}

std::string refusal(const std::string& config) {
  const auto described = describe(config);
  return described ? "no error" : described.error().what;
}

std::string config_of(const char* name) { return Checkpoint(name).config; }

Loaded load(const Checkpoint& checkpoint, RefMode mode = RefMode::oracle) {
  const ModelFolder folder(checkpoint.config, checkpoint.tensors);
  return model::load(folder.path(), mode);
}

std::vector<float> values_of(const TestTensor& bf16) {
  std::vector<float> out(bf16.bytes.size() / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    BFloat16 x;
    std::memcpy(&x, &bf16.bytes[2 * i], 2);
    out[i] = to_f32(x);
  }
  return out;
}

std::string bf16_bytes(const std::vector<float>& values) {
  std::string out(2 * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 x = to_bf16(values[i]);
    std::memcpy(&out[2 * i], &x, 2);
  }
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = std::max(difference, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return difference / largest;
}

std::string attention_name(int layer, std::string_view name) {
  return "model.layers." + std::to_string(layer) + ".self_attn." + std::string(name) + ".weight";
}

TEST(LatentConfig, AYarnModelScalesItsScoresByMscaleSquared_MOD35) {
  SKIP_WITHOUT("deepseek-v3-yarn");
  const std::string config = config_of("deepseek-v3-yarn");
  const double mscale = 0.1 * std::log(8.0) + 1.0;

  const auto yarn = describe(config);
  const auto plain = describe(replaced(config, "\"mscale_all_dim\": 1.0", "\"beta_slow\": 1.0"));

  ASSERT_TRUE(yarn && plain);
  EXPECT_FLOAT_EQ(yarn->layers[0].latent->scale,
                  static_cast<float>(mscale * mscale / std::sqrt(48.0)));
  EXPECT_FLOAT_EQ(plain->layers[0].latent->scale, static_cast<float>(1.0 / std::sqrt(48.0)));
  EXPECT_EQ(yarn->ropes[0].attention_factor, 1.0);  // mscale and mscale_all_dim are the same
  EXPECT_EQ(yarn->ropes[0].inverse_frequencies.size(), 8u);
  EXPECT_TRUE(yarn->ropes[0].interleaved);
}

// The shape of DeepSeek-V3's own config.json, in the older dialect and with nothing of its
// defaults.
TEST(LatentConfig, ReadsThePublishedShapeOfDeepSeekV3_MOD35) {
  const auto d = describe(R"({"architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3", "hidden_size": 7168, "vocab_size": 129280,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-06, "rope_theta": 10000, "num_nextn_predict_layers": 1,
    "tie_word_embeddings": false, "attention_bias": false, "rope_scaling": {"type": "yarn",
    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096}})");

  ASSERT_TRUE(d) << d.error().what;
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_EQ(d->max_positions, 163840u);
  EXPECT_EQ(d->n_draft_layers, 1u);
  EXPECT_FALSE(d->layers[2].moe);
  ASSERT_TRUE(d->layers[3].moe);
  EXPECT_EQ(d->layers[3].moe->n_groups, 8u);
  EXPECT_EQ(d->layers[3].moe->topk_groups, 4u);
  EXPECT_EQ(d->layers[3].moe->shared_intermediate, 2048u);
  EXPECT_FLOAT_EQ(d->layers[3].moe->scale, 2.5f);
  EXPECT_FLOAT_EQ(d->layers[0].latent->scale,
                  static_cast<float>(mscale * mscale / std::sqrt(192.0)));
  EXPECT_EQ(d->ropes[0].inverse_frequencies.size(), 32u);
  EXPECT_EQ(kv_list_of(*d)[60], (KvLayerSpec{.latent = {.rank = 512, .rope_dim = 64}}));
}

TEST(LatentConfig, ALayersStateIsItsLatentRowAndItsOwnIndexKeys_KV40) {
  const std::string config = config_of(kSparse);
  const auto own = describe(config);
  const auto shared =
      describe(replaced(config, "\"full\",\n    \"full\"", "\"full\",\n    \"shared\""));

  ASSERT_TRUE(own && shared);
  const KvLayerSpec with_index{.latent = {.rank = 32, .rope_dim = 8, .index_dim = 16}};
  const KvLayerSpec without{.latent = {.rank = 32, .rope_dim = 8, .index_dim = 0}};
  EXPECT_EQ(kv_list_of(*own), (KvList{with_index, with_index, with_index}));
  EXPECT_EQ(kv_list_of(*shared), (KvList{with_index, without, with_index}));
}

TEST(LatentConfig, LayersThatShareAChoiceAreNamedOrFollowAPattern_MOD36) {
  const std::string config = config_of(kSparse);
  const std::string types = "\"indexer_types\": [\n    \"full\",\n    \"full\",\n    \"full\"\n  ]";
  const auto shares = [&](std::string_view members) {
    const auto described = describe(replaced(config, types, members));
    std::string out;
    if (!described) return described.error().what;
    for (const LayerSpec& layer : described->layers)
      out += layer.latent->index->is_shared ? 'S' : 'F';
    return out;
  };
  EXPECT_EQ(shares(R"("indexer_types": ["full", "shared", "full", "full"])"), "FSF");
  EXPECT_EQ(shares(R"("index_topk_pattern": "FFS")"), "FFS");
  EXPECT_EQ(shares(R"("index_topk_freq": 1)"), "FFF");
  EXPECT_EQ(shares(R"("index_topk_freq": 2)"), "FFS");
  EXPECT_EQ(shares(R"("index_topk_freq": 4, "index_skip_topk_offset": 1)"), "FSS");
  EXPECT_NE(shares(R"("index_topk_pattern": "SFF")").find("'indexer_types' must begin with a full"),
            std::string::npos)
      << shares(R"("index_topk_pattern": "SFF")");
  EXPECT_NE(shares(R"("index_topk_pattern": "FXF")").find("'index_topk_pattern'"),
            std::string::npos);
  EXPECT_NE(shares(R"("indexer_types": ["full", "half", "full"])").find("has 'half'"),
            std::string::npos);
  EXPECT_NE(shares(R"("indexer_types": ["full"])").find("an entry a layer"), std::string::npos);
}

TEST(LatentConfig, DenseAndSparseLayersAreNamedOrCounted) {
  const std::string config = config_of(kSparse);
  const std::string types =
      "\"mlp_layer_types\": [\n    \"dense\",\n    \"sparse\",\n    \"sparse\"\n  ]";
  const auto experts = [&](std::string_view members) {
    const auto described = describe(replaced(config, types, members));
    std::string out;
    if (!described) return described.error().what;
    for (const LayerSpec& layer : described->layers) out += layer.moe ? 'S' : 'D';
    return out;
  };
  EXPECT_EQ(experts(R"("mlp_layer_types": ["sparse", "dense", "sparse"])"), "SDS");
  EXPECT_EQ(experts(R"("moe_layer_freq": 1)"), "DSS");
  EXPECT_EQ(experts(R"("moe_layer_freq": 2)"), "DDS");
}

TEST(LatentConfig, RefusesWhatItCannotMean) {
  const std::string sparse = config_of(kSparse);
  EXPECT_NE(refusal(replaced(sparse, "\"q_lora_rank\": 32", "\"q_lora_rank\": null"))
                .find("'q_lora_rank' is missing"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(sparse, "\"index_head_dim\": 16", "\"index_head_dim\": 4"))
                .find("'index_head_dim' must be at least qk_rope_head_dim"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(sparse, "\"kv_lora_rank\": 32", "\"kv_lora_rank\": 0"))
                .find("'kv_lora_rank'"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(sparse, "\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7")),
            "no error");
  EXPECT_NE(
      refusal(replaced(replaced(sparse, "GlmMoeDsaForCausalLM", "DeepseekV3ForCausalLM"),
                       "\"attention_bias\"", "\"scoring_func\": \"softmax\", \"attention_bias\""))
          .find("'scoring_func' must be sigmoid"),
      std::string::npos);
}

TEST(LatentWeights, NameTheFirstTensorMissingMisshapenOrLeftOver_MOD5) {
  Checkpoint missing(kSparse), misshapen(kSparse), extra(kSparse), no_index(kSparse);
  missing.drop(attention_name(1, "kv_b_proj"));
  misshapen.named(attention_name(2, "kv_a_proj_with_mqa")).shape = {64, 40};
  extra.tensors.push_back({attention_name(0, "q_proj"), "BF16", {1}, std::string(2, '\0')});
  no_index.drop(attention_name(0, "indexer.wk"));

  EXPECT_NE(missing.load_error().find("'model.layers.1.self_attn.kv_b_proj.weight' is missing"),
            std::string::npos);
  EXPECT_NE(misshapen.load_error().find(
                "'model.layers.2.self_attn.kv_a_proj_with_mqa.weight' has shape [64, 40]"),
            std::string::npos);
  EXPECT_NE(extra.load_error().find("q_proj.weight' is not part of this model"), std::string::npos);
  EXPECT_NE(no_index.load_error().find("'model.layers.0.self_attn.indexer.wk.weight' is missing"),
            std::string::npos);
}

TEST(LatentWeights, ALayerThatSharesHasNoIndexOfItsOwn_MOD5) {
  Checkpoint checkpoint(kSparse);
  checkpoint.config =
      replaced(checkpoint.config, "\"full\",\n    \"full\"", "\"full\",\n    \"shared\"");
  EXPECT_NE(checkpoint.load_error().find("'model.layers.1.self_attn.indexer.k_norm.bias' is not"),
            std::string::npos)
      << checkpoint.load_error();
}

TEST(LatentWeights, TheDraftLayerStaysUnread_MOD63) {
  Checkpoint checkpoint(kSparse);
  checkpoint.config = replaced(checkpoint.config, "\"attention_bias\"",
                               "\"num_nextn_predict_layers\": 1, \"attention_bias\"");
  checkpoint.tensors.push_back(
      {attention_name(3, "indexer.wk"), "BF16", {2, 2}, std::string(8, '\0')});
  checkpoint.tensors.push_back({"model.layers.3.enorm.weight", "BF16", {2}, std::string(4, '\0')});
  EXPECT_EQ(checkpoint.load_error(), "no error");
}

// Converted files hold kv_b_proj as two stacks of heads: embed_q, its key half transposed, and
// unembed_out, its value half.
TEST(LatentWeights, TakesTheExpansionOfALatentWholeOrAbsorbed) {
  Checkpoint whole(kSparse), absorbed(kSparse);
  constexpr std::size_t kHeads = 4, kNope = 16, kV = 16, kRank = 32;
  for (int layer = 0; layer < 3; ++layer) {
    const std::vector<float> stored = values_of(absorbed.named(attention_name(layer, "kv_b_proj")));
    std::vector<float> embed, unembed;
    for (std::size_t h = 0; h < kHeads; ++h) {
      const float* const head = &stored[h * (kNope + kV) * kRank];
      for (std::size_t r = 0; r < kRank; ++r) {
        for (std::size_t d = 0; d < kNope; ++d) embed.push_back(head[d * kRank + r]);
      }
      unembed.insert(unembed.end(), head + kNope * kRank, head + (kNope + kV) * kRank);
    }
    absorbed.drop(attention_name(layer, "kv_b_proj"));
    absorbed.tensors.push_back(
        {attention_name(layer, "embed_q"), "BF16", {kHeads, kRank, kNope}, bf16_bytes(embed)});
    absorbed.tensors.push_back(
        {attention_name(layer, "unembed_out"), "BF16", {kHeads, kV, kRank}, bf16_bytes(unembed)});
  }
  for (const RefMode mode : {RefMode::oracle, RefMode::mirror})
    EXPECT_TRUE(
        same_bits(logits_of(load(whole, mode), {40}), logits_of(load(absorbed, mode), {40})));
}

// A quantized kv_b_proj: of its key half the decoded elements, rounded like those of any dense
// matrix, of its value half the codes (docs/numerics.md). To the oracle both are the decoded
// matrix.
TEST(LatentWeights, AQuantizedExpansionIsItsDecodedElements) {
  Checkpoint quantized(kSparse), decoded(kSparse);
  constexpr std::size_t kRows = 128, kRank = 32;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = attention_name(layer, "kv_b_proj"),
                      module = name.substr(0, name.size() - 6);
    std::string codes;
    std::vector<float> scales(kRows), biases(kRows), values;
    for (std::size_t r = 0; r < kRows; ++r) {
      scales[r] = r % 2 ? 0.001953125f : 0.00390625f;
      biases[r] = -0.25f;
      for (std::size_t i = 0; i < kRank; ++i) {
        const auto code =
            static_cast<unsigned char>((r * 31 + i * 17 + static_cast<std::size_t>(layer)) % 128);
        codes += static_cast<char>(code);
        values.push_back(std::fma(static_cast<float>(code), scales[r], biases[r]));
      }
    }
    quantized.drop(name);
    quantized.tensors.push_back({name, "U32", {kRows, kRank / 4}, codes});
    quantized.tensors.push_back({module + "scales", "BF16", {kRows, 1}, bf16_bytes(scales)});
    quantized.tensors.push_back({module + "biases", "BF16", {kRows, 1}, bf16_bytes(biases)});
    decoded.named(name).bytes = bf16_bytes(values);
  }
  quantized.config = replaced(quantized.config, "\"attention_bias\"",
                              R"("quantization": {"group_size": 32, "bits": 8}, "attention_bias")");

  EXPECT_TRUE(same_bits(logits_of(load(quantized), {40}), logits_of(load(decoded), {40})));
}

// With unit norms before it, q_a_proj the identity and its norm all ones, q_b_proj reads what
// q_proj would.
TEST(LatentQueries, MayComeFromTheInputAtOnce_MOD35) {
  SKIP_WITHOUT(kDense);
  Checkpoint down(kDense), direct(kDense);
  constexpr std::size_t kHidden = 64, kWidth = 96;
  std::vector<float> identity(kHidden * kHidden, 0.0f), q(kWidth * kHidden);
  for (std::size_t i = 0; i < kHidden; ++i) identity[i * kHidden + i] = 1.0f;
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 128.0f;
  const std::vector<float> ones(kHidden, 1.0f);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string norm = "model.layers." + std::to_string(layer) + ".input_layernorm.weight";
    down.named(norm).bytes = direct.named(norm).bytes = bf16_bytes(ones);
    for (Checkpoint* checkpoint : {&down, &direct}) {
      for (const char* part : {"q_a_proj", "q_a_layernorm", "q_b_proj"})
        checkpoint->drop(attention_name(layer, part));
    }
    down.tensors.push_back(
        {attention_name(layer, "q_a_proj"), "BF16", {kHidden, kHidden}, bf16_bytes(identity)});
    down.tensors.push_back(
        {attention_name(layer, "q_a_layernorm"), "BF16", {kHidden}, bf16_bytes(ones)});
    down.tensors.push_back(
        {attention_name(layer, "q_b_proj"), "BF16", {kWidth, kHidden}, bf16_bytes(q)});
    direct.tensors.push_back(
        {attention_name(layer, "q_proj"), "BF16", {kWidth, kHidden}, bf16_bytes(q)});
  }
  down.config = replaced(down.config, "\"q_lora_rank\": 32", "\"q_lora_rank\": 64");
  direct.config = replaced(direct.config, "\"q_lora_rank\": 32", "\"q_lora_rank\": null");

  const auto a = logits_of(load(down), {40}), b = logits_of(load(direct), {40});

  ASSERT_EQ(a.size(), b.size());
  EXPECT_LT(relative_error(a, b), 1e-4);
}

// Without its index the same model attends everything: no difference while a query has at most
// top_k positions, one from the first that has more.
TEST(SparseIndex, AttendsEverythingUpToItsTopK_MOD36) {
  Checkpoint sparse(kSparse), dense(kSparse);
  std::erase_if(dense.tensors,
                [](const TestTensor& t) { return t.name.find(".indexer.") != std::string::npos; });
  dense.config = replaced(dense.config, "GlmMoeDsaForCausalLM", "DeepseekV3ForCausalLM");
  const Loaded a = load(sparse), b = load(dense);
  const std::size_t vocab = a.model->vocab_size();

  const auto few = logits_of(a, {32}), few_dense = logits_of(b, {32});
  const auto many = logits_of(a, {40}), many_dense = logits_of(b, {40});

  EXPECT_TRUE(same_bits(few, few_dense));
  EXPECT_EQ(std::memcmp(many.data(), many_dense.data(), 32 * vocab * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(&many[32 * vocab], &many_dense[32 * vocab], 8 * vocab * sizeof(float)), 0);
}

// Keeps what index_select chose and what latent_attention was given.
class Recorder final : public ops::WrappedDevice {
 public:
  explicit Recorder(std::unique_ptr<ops::Device> inner) : WrappedDevice(std::move(inner)) {
    table_.index_select = [](ops::Device& device, const ops::IndexSelectArgs& args) noexcept {
      auto& self = static_cast<Recorder&>(device);
      self.inner().ops().index_select(self.inner(), args);
      self.chosen.emplace_back(args.selected.begin(), args.selected.end());
    };
    table_.latent_attention = [](ops::Device& device,
                                 const ops::LatentAttentionArgs& args) noexcept {
      auto& self = static_cast<Recorder&>(device);
      self.inner().ops().latent_attention(self.inner(), args);
      self.attended.emplace_back(args.selected.begin(), args.selected.end());
    };
  }
  std::vector<std::vector<std::uint32_t>> chosen, attended;
};

TEST(SparseIndex, ALayerMayTakeTheChoiceOfTheOneBefore_MOD36) {
  Checkpoint checkpoint(kSparse);
  std::erase_if(checkpoint.tensors, [](const TestTensor& t) {
    return t.name.starts_with("model.layers.1.self_attn.indexer.");
  });
  checkpoint.config =
      replaced(checkpoint.config, "\"full\",\n    \"full\"", "\"full\",\n    \"shared\"");
  const ModelFolder folder(checkpoint.config, checkpoint.tensors);
  const auto files = formats::ModelFiles::open(folder.path());
  auto recorder = std::make_unique<Recorder>(backend::ref::make_ref_device(RefMode::oracle));
  Recorder& seen = *recorder;
  Loaded loaded{.device = std::move(recorder), .model = nullptr};
  auto model = Model::load(*files, *loaded.device, {.max_context = 256, .max_step_tokens = 64});
  ASSERT_TRUE(model) << model.error().what;
  loaded.model = *std::move(model);

  const auto whole = logits_of(loaded, {40});

  ASSERT_EQ(seen.chosen.size(), 2u);  // layers 0 and 2
  ASSERT_EQ(seen.attended.size(), 3u);
  EXPECT_EQ(seen.attended[0], seen.chosen[0]);
  EXPECT_EQ(seen.attended[1], seen.chosen[0]);
  EXPECT_EQ(seen.attended[2], seen.chosen[1]);
  EXPECT_NE(seen.chosen[0], seen.chosen[1]);
  EXPECT_TRUE(same_bits(whole, logits_of(loaded, {7, 1, 24, 8})));
}

TEST(LatentCost, CountsTheBytesAndOperationsOfAStep) {
  const Loaded sparse = load(Checkpoint(kSparse));
  const StepCost one = sparse.model->cost(1, 99);
  // Attention of a layer: q 64·32 and 32·96, the row 64·40, into the latent and out of it 4·16·32
  // each, o 64·64; its index: 32·32, 64·16, 64·2. Then a dense layer of 96, two of a router, two
  // experts and a shared one of 48; the head.
  const std::uint64_t attention = 64 * 32 + 32 * 96 + 64 * 40 + 2 * 4 * 16 * 32 + 64 * 64;
  const std::uint64_t index = 32 * 32 + 64 * 16 + 64 * 2;
  const std::uint64_t feed_forward = 3 * 64 * 96 + 2 * (64 * 8 + 3 * 64 * 3 * 48);
  EXPECT_EQ(one.linear_flops, 2 * (3 * (attention + index) + feed_forward + 288 * 64));
  // 32 of 100 rows are attended, all index keys looked at.
  EXPECT_EQ(one.attention_flops, 3u * (2 * 4 * (40 + 32) * 32 + 2 * 2 * 16 * 100));
  EXPECT_EQ(one.kv_bytes, 3u * ((32 + 1) * 40 + (100 + 1) * 16) * 2);
  EXPECT_LT(one.weight_bytes, sparse.model->weight_bytes());
}

}  // namespace
}  // namespace kvasir::model
