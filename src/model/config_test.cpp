// Reading config.json: families, dialects and refusals (MOD-2…5, 10-31).
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/file.h"
#include "model/families.h"
#include "model/testing/model_folder.h"

namespace kvasir::model {
namespace {

// A small llama; `more` are members that override or add (the last of equal names counts).
std::string config_with(std::string_view more) {
  std::string out =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 100,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": false)";
  return out.append(more.empty() ? "" : ", ").append(more).append("}");
}

Result<DecoderConfig> describe(std::string_view more, std::uint32_t max_context = 0) {
  const ModelFolder folder(config_with(more));
  const auto files = formats::ModelFiles::open(folder.path());
  if (!files) return files.error();
  return describe_model(*files, max_context);
}

Result<DecoderConfig> describe_as(std::string_view architecture,
                                  std::string_view model_type,
                                  std::string_view more) {
  return describe("\"architectures\": [\"" + std::string(architecture) + "\"], \"model_type\": \"" +
                  std::string(model_type) + "\"" + (more.empty() ? "" : ", ") + std::string(more));
}

std::string error_of(std::string_view more, std::uint32_t max_context = 0) {
  const auto config = describe(more, max_context);
  return config ? "no error" : config.error().what;
}

std::vector<std::uint32_t> windows_of(const DecoderConfig& config) {
  std::vector<std::uint32_t> out;
  for (const LayerSpec& layer : config.layers) out.push_back(layer.attention.window);
  return out;
}

using Windows = std::vector<std::uint32_t>;

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * want[i]) << i;
}

void expect_runnable(const LatentAttentionSpec& a,
                     const DecoderConfig& config,
                     const std::string& from) {
  ASSERT_TRUE(a.n_heads && a.kv_rank && a.nope_dim && a.v_dim && std::isfinite(a.scale)) << from;
  ASSERT_LE(a.latent_width(), 1u << 20) << from;
  ASSERT_LT(a.rope, config.ropes.size()) << from;
  ASSERT_LE(2 * config.ropes[a.rope].inverse_frequencies.size(), a.rope_dim) << from;
  if (!a.index) return;
  ASSERT_TRUE(a.q_rank && a.index->n_heads && a.index->dim >= a.rope_dim && a.index->top_k) << from;
}

void expect_runnable(const DecoderConfig& config, const std::string& from) {
  EXPECT_TRUE(config.hidden && config.vocab && config.max_positions && !config.layers.empty())
      << from;
  for (const LayerSpec& layer : config.layers) {
    if (layer.latent) {
      expect_runnable(*layer.latent, config, from);
      continue;
    }
    const AttentionSpec& a = layer.attention;
    ASSERT_TRUE(!a.donor || *a.donor < std::size_t(&layer - config.layers.data())) << from;
    if (const auto& d = layer.delta) {
      ASSERT_TRUE(d->n_key_heads && d->n_value_heads % d->n_key_heads == 0 && d->key_dim &&
                  d->value_dim && d->conv_kernel)
          << from;
    }
    ASSERT_EQ(layer.is_recurrent(), layer.delta || layer.short_conv) << from;
    ASSERT_TRUE(layer.is_recurrent() || (a.n_kv_heads && a.n_heads % a.n_kv_heads == 0 &&
                                         a.q_width() && std::isfinite(a.scale)))
        << from;
    if (a.rope) {
      ASSERT_LT(*a.rope, config.ropes.size()) << from;
      ASSERT_LE(2 * config.ropes[*a.rope].inverse_frequencies.size(), a.head_dim) << from;
    }
    if (!layer.moe) continue;
    const MoeSpec& moe = *layer.moe;
    ASSERT_TRUE(moe.top_k && moe.top_k <= moe.n_experts && moe.intermediate && moe.n_groups &&
                moe.n_experts % moe.n_groups == 0)
        << from;
    ASSERT_LE(moe.topk_groups, moe.n_groups) << from;
  }
  for (const RopeSpec& rope : config.ropes) {
    for (const double f : rope.inverse_frequencies) ASSERT_TRUE(std::isfinite(f)) << from;
    ASSERT_TRUE(std::isfinite(rope.attention_factor)) << from;
  }
}

TEST(ConfigReading, HeadDimDefaultsToHiddenByHeads_MOD4) {
  const auto config = describe("\"head_dim\": null");
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(config->layers[0].attention.head_dim, 16u);
  EXPECT_FLOAT_EQ(config->layers[0].attention.scale, 0.25f);
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->max_positions, 1024u);
  EXPECT_EQ(kv_list_of(*config), KvList(4, {.n_kv_heads = 2, .head_dim = 16, .window = 0}));
}

TEST(ConfigReading, RefusesAnUnknownModelTypeWithTheList_MOD5) {
  const auto config = describe_as("FooForCausalLM", "foo", "");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Errc::unsupported);
  EXPECT_TRUE(config.error().what.starts_with("unsupported model type 'foo'; supported: llama, "))
      << config.error().what;
  EXPECT_NE(config.error().what.find(", smollm3"), std::string::npos);
}

TEST(ConfigReading, RefusesAClassifierOfAKnownType_MOD5) {
  const auto config = describe_as("Qwen3ForSequenceClassification", "qwen3", "");
  ASSERT_FALSE(config);
  EXPECT_TRUE(
      config.error().what.starts_with("unsupported model type 'Qwen3ForSequenceClassification'"))
      << config.error().what;
}

TEST(ConfigReading, ATrunkOfAKnownFamilyHasNoHead_MOD17) {
  const auto trunk = describe_as("Qwen3Model", "qwen3", "");
  ASSERT_TRUE(trunk) << trunk.error().what;
  EXPECT_FALSE(trunk->has_head);
  EXPECT_EQ(trunk->family, "qwen3");
  EXPECT_TRUE(describe_as("Qwen3ForCausalLM", "qwen3", "")->has_head);
}

TEST(ConfigReading, ADecoderThatLooksBothWaysIsRefused_MOD61) {
  const auto config = describe_as("Qwen2Model", "qwen2", R"("is_causal": false)");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().what.find("is_causal"), std::string::npos) << config.error().what;
}

TEST(ConfigReading, LiftsTheTextModelOfAVisionWrapper_MOD4) {
  const ModelFolder folder(
      R"({"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "vision_config": {},
    "text_config": {"model_type": "mistral", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 1024, "sliding_window": 32}})");
  const auto files = formats::ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;
  const auto config = describe_model(*files, 0);
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->family, "mistral");
  EXPECT_EQ(windows_of(*config), (Windows{32, 32}));
}

TEST(ConfigReading, BoundsEveryNumberAndNamesIt) {
  const std::pair<const char*, const char*> kBad[] = {
      {"\"num_attention_heads\": 0", "'num_attention_heads' must be a number from 1 to 4096"},
      {"\"num_attention_heads\": -4", "'num_attention_heads' must be"},
      {"\"num_key_value_heads\": 3",
       "'num_attention_heads' must be a multiple of num_key_value_heads"},
      {"\"num_hidden_layers\": 100000", "'num_hidden_layers' must be a number from 1 to 4096"},
      {"\"hidden_size\": \"64\"", "'hidden_size' must be a number"},
      {"\"hidden_size\": 64.5", "'hidden_size' must be an integer"},
      {"\"hidden_size\": 66", "'hidden_size' must be a multiple of num_attention_heads"},
      {"\"hidden_size\": 1e300", "'hidden_size' must be"},
      {"\"vocab_size\": null", "'vocab_size' is missing"},
      {"\"rms_norm_eps\": -1", "'rms_norm_eps' must be a number from 0 to 1"},
      {"\"head_dim\": 9", "must make an even number"},
      {"\"hidden_act\": \"relu\"", "'hidden_act' 'relu' is not supported"},
      {"\"layer_types\": [\"linear_attention\"]", "'layer_types' has 'linear_attention'"},
      {"\"layer_types\": 3", "'layer_types' must be an array"},
      {"\"rope_theta\": 0", "'rope_theta' must be"},
      {"\"rope_parameters\": []", "'rope_parameters' must be an object"},
      {"\"rope_parameters\": {\"rope_type\": \"magic\"}",
       "'rope_parameters.rope_type' 'magic' is not supported"},
      {"\"rope_parameters\": {\"rope_type\": \"linear\"}", "'rope_parameters.factor' is missing"},
      {"\"rope_parameters\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 2]}",
       "'rope_parameters.short_factor' must be an array of 8 numbers"},
      {"\"partial_rotary_factor\": 0.01", "'partial_rotary_factor' must make"},
      {"\"tie_word_embeddings\": 1", "'tie_word_embeddings' must be true or false"},
  };
  for (const auto& [member, message] : kBad) {
    EXPECT_NE(error_of(member).find(message), std::string::npos)
        << member << " gave: " << error_of(member);
  }
}

// Whatever one member says, in any family: a refusal, or a sheet that the graph can run.
TEST(ConfigReading, SurvivesAnyValueInAnyMember) {
  const char* const kMembers[] = {"hidden_size",
                                  "vocab_size",
                                  "num_hidden_layers",
                                  "num_attention_heads",
                                  "num_key_value_heads",
                                  "head_dim",
                                  "intermediate_size",
                                  "max_position_embeddings",
                                  "original_max_position_embeddings",
                                  "rms_norm_eps",
                                  "hidden_act",
                                  "layer_types",
                                  "sliding_window",
                                  "sliding_window_pattern",
                                  "max_window_layers",
                                  "rope_theta",
                                  "rope_scaling",
                                  "rope_parameters",
                                  "partial_rotary_factor",
                                  "num_experts",
                                  "num_experts_per_tok",
                                  "moe_intermediate_size",
                                  "n_group",
                                  "topk_group",
                                  "n_shared_experts",
                                  "first_k_dense_replace",
                                  "mlp_only_layers",
                                  "decoder_sparse_step",
                                  "no_rope_layers",
                                  "no_rope_layer_interval",
                                  "logits_scaling",
                                  "global_head_dim",
                                  "num_kv_shared_layers",
                                  "hidden_size_per_layer_input",
                                  "enable_moe_block",
                                  "per_layer_config",
                                  "query_pre_attn_scalar",
                                  "final_logit_softcapping",
                                  "rope_local_base_freq",
                                  "swiglu_limit",
                                  "layer_norm_eps",
                                  "logit_scale",
                                  "q_lora_rank",
                                  "kv_lora_rank",
                                  "qk_rope_head_dim",
                                  "v_head_dim",
                                  "mlp_layer_types",
                                  "moe_layer_freq",
                                  "indexer_types",
                                  "index_topk_pattern",
                                  "index_topk_freq",
                                  "index_topk",
                                  "index_head_dim",
                                  "index_n_heads"};
  const char* const kValues[] = {
      "0",
      "-1",
      "1",
      "3",
      "0.5",
      "4096",
      "4294967295",
      "1e308",
      "true",
      "null",
      "\"x\"",
      "[]",
      "[-1, 1e300]",
      "{}",
      R"({"rope_type": "yarn", "factor": 1e-3, "original_max_position_embeddings": 1})",
      R"({"rope_type": "yarn", "factor": 1e6, "beta_fast": 1e-9, "beta_slow": 1e6})",
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.2})",
      R"({"1": {"head_dim": 7}})"};
  const ModelFolder folder("{}");
  const ModelFamily* last = nullptr;
  for (const ModelFamily& family : kFamilies) {
    if (last && std::exchange(last, &family)->describe == family.describe) continue;
    last = &family;
    const std::string start = "\"architectures\": [\"" + std::string(family.architecture) +
                              R"("], "use_sliding_window": true, "num_experts": 8,
                                 "num_experts_per_tok": 2, "top_k_experts": 2,
                                 "moe_intermediate_size": 48, "n_group": 1, "topk_group": 1,
                                 "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                                 "qk_rope_head_dim": 8, "v_head_dim": 16, ")";
    for (const char* const member : kMembers) {
      for (const char* const value : kValues) {
        folder.set_config(config_with(start + member + "\": " + value));
        const auto files = formats::ModelFiles::open(folder.path());
        if (!files) continue;
        const auto config = describe_model(*files, 0);
        if (config)
          expect_runnable(*config, std::string(family.name) + " " + member + " = " + value);
      }
    }
  }
}

TEST(ConfigReading, RefusesMoreContextThanTheModelHas) {
  EXPECT_EQ(describe("", 512)->max_positions, 512u);
  EXPECT_EQ(error_of("", 1025), "a context of 1025 tokens is more than the model's 1024");
}

TEST(Windows, MistralSlidesOnAllLayersIfSet_MOD13) {
  EXPECT_EQ(windows_of(*describe_as("MistralForCausalLM", "mistral", "\"sliding_window\": 24")),
            (Windows{24, 24, 24, 24}));
  EXPECT_EQ(windows_of(*describe_as("MistralForCausalLM", "mistral", "\"sliding_window\": null")),
            (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows_of(*describe_as("MistralForCausalLM", "mistral", "\"sliding_window\": 4096")),
            (Windows{0, 0, 0, 0}));
}

TEST(Windows, LayerTypesDecideAndAMissingTypeIsFull_MOD3_KV31) {
  const char* const kTypes =
      R"("sliding_window": 24, "layer_types": ["sliding_attention", "full_attention", null])";
  EXPECT_EQ(windows_of(*describe_as("MistralForCausalLM", "mistral", kTypes)),
            (Windows{24, 0, 0, 0}));
  EXPECT_EQ(windows_of(*describe(kTypes)), (Windows{24, 0, 0, 0}));
}

TEST(Windows, QwenSlidesOnlyOnRequestFromMaxWindowLayersOn_MOD15) {
  const auto windows = [](std::string_view more) {
    return windows_of(*describe_as("Qwen2ForCausalLM", "qwen2", more));
  };
  EXPECT_EQ(windows(R"("sliding_window": 24, "use_sliding_window": false, "max_window_layers": 2)"),
            (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(R"("sliding_window": 24, "use_sliding_window": true, "max_window_layers": 2)"),
            (Windows{0, 0, 24, 24}));
  EXPECT_EQ(windows(R"("sliding_window": 24, "max_window_layers": 0)"), (Windows{0, 0, 0, 0}));
}

TEST(Families, SmolLm3LeavesRopeOutWhereItsListSaysZero_MOD31) {
  const auto has_rope = [](std::string_view more) {
    std::vector<bool> out;
    const auto config = describe_as("SmolLM3ForCausalLM", "smollm3", more);
    for (const LayerSpec& layer : config->layers) out.push_back(layer.attention.rope.has_value());
    return out;
  };
  EXPECT_EQ(has_rope("\"no_rope_layers\": [1, 0, 0, 1]"),
            (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(has_rope("\"no_rope_layer_interval\": 2"),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(has_rope(""), (std::vector<bool>{true, true, true, false}));
}

TEST(Families, Qwen3MoeKeepsNamedAndSkippedLayersDense_MOD18) {
  const auto config = describe_as(
      "Qwen3MoeForCausalLM", "qwen3_moe",
      R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": true,
                                     "decoder_sparse_step": 2, "mlp_only_layers": [3])");
  ASSERT_TRUE(config) << config.error().what;
  const auto& layers = config->layers;
  EXPECT_FALSE(layers[0].moe);
  ASSERT_TRUE(layers[1].moe);
  EXPECT_FALSE(layers[2].moe);
  EXPECT_FALSE(layers[3].moe);
  EXPECT_TRUE(layers[1].moe->renormalize);
  EXPECT_EQ(layers[1].moe->n_experts, 8u);
}

TEST(Families, Glm4MoeChecksItsGroups_MOD29) {
  const auto with = [](std::string_view more) {
    return describe_as(
        "Glm4MoeForCausalLM", "glm4_moe",
        R"("n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "n_shared_experts": 2,
                          "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, )" +
            std::string(more));
  };
  const auto config = with("\"n_group\": 4, \"topk_group\": 2");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_FALSE(config->layers[0].moe);
  EXPECT_EQ(config->layers[1].moe->shared_intermediate, 96u);
  EXPECT_EQ(config->ropes[0].inverse_frequencies.size(), 4u);  // half of the head of 16
  EXPECT_FALSE(with("\"n_group\": 3"));
  EXPECT_FALSE(with("\"n_group\": 8, \"topk_group\": 8"));
  EXPECT_FALSE(with("\"n_group\": 4, \"topk_group\": 1"));
  EXPECT_FALSE(with("\"n_group\": 2, \"topk_group\": 3"));
}

TEST(Families, GraniteScalesEmbeddingsResidualsScoresAndLogits_MOD30) {
  const auto config = describe_as(
      "GraniteForCausalLM", "granite",
      R"("embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 8)");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_FLOAT_EQ(config->embedding_scale, 12.0f);
  EXPECT_FLOAT_EQ(config->residual_scale, 0.22f);
  EXPECT_FLOAT_EQ(config->layers[3].attention.scale, 0.0625f);
  EXPECT_FLOAT_EQ(config->logit_scale, 0.125f);
}

TEST(Rope, BothDialectsGiveTheSameFrequencies_MOD4) {
  const auto modern = describe(
      R"("rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0})");
  const auto older =
      describe(R"("rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 500000.0)");
  const auto per_type = describe(
      R"("rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}})");
  ASSERT_TRUE(modern && older && per_type);
  EXPECT_EQ(modern->ropes[0].inverse_frequencies, older->ropes[0].inverse_frequencies);
  EXPECT_EQ(modern->ropes[0].inverse_frequencies, per_type->ropes[0].inverse_frequencies);
  EXPECT_DOUBLE_EQ(modern->ropes[0].inverse_frequencies[1], std::pow(500000.0, -0.125) / 4.0);
}

TEST(Rope, EachLayerTypeHasItsOwn_MOD4) {
  const auto config = describe(
      R"("sliding_window": 24, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": {"rope_theta": 1000000.0}, "sliding_attention": {"rope_theta": 10000.0}})");
  ASSERT_TRUE(config) << config.error().what;
  ASSERT_EQ(config->ropes.size(), 2u);
  EXPECT_EQ(config->layers[0].attention.rope, config->layers[2].attention.rope);
  EXPECT_DOUBLE_EQ(config->ropes[*config->layers[0].attention.rope].inverse_frequencies[4], 0.01);
  EXPECT_DOUBLE_EQ(config->ropes[*config->layers[1].attention.rope].inverse_frequencies[4], 0.001);
}

// Values of transformers' formula, worked out apart in f64.
TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes_MOD11) {
  const auto config = describe(
      R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64})");
  ASSERT_TRUE(config) << config.error().what;
  expect_near(
      config->ropes[0].inverse_frequencies,
      {1.0, 0.0794030091792082, 0.004700753866357992, 0.0009115830921521387, 0.00017677669529663688,
       3.428102195952591e-05, 6.647869871181235e-06, 1.2891731721515574e-06});
}

TEST(Rope, YarnRampsBetweenItsBetasTruncatedOrNot_MOD12) {
  const std::string yarn =
      R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 64, "truncate": )";
  const auto truncated = describe(yarn + "true}"), exact = describe(yarn + "false}");
  ASSERT_TRUE(truncated && exact);
  EXPECT_NEAR(truncated->ropes[0].attention_factor, 1.138629436111989, 1e-15);
  EXPECT_NEAR(truncated->ropes[0].inverse_frequencies[1], 0.23717082451262847, 1e-15);
  EXPECT_NEAR(truncated->ropes[0].inverse_frequencies[2], 0.05, 1e-15);
  EXPECT_NEAR(exact->ropes[0].inverse_frequencies[1], 0.19858352015369318, 1e-15);
  EXPECT_NEAR(exact->ropes[0].inverse_frequencies[2], 0.02559524589192421, 1e-15);
}

TEST(Rope, YarnReachesFactorTimesTheOriginalLength_MOD2) {
  const char* const kYarn =
      R"("max_position_embeddings": 1024, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})";
  EXPECT_EQ(describe(kYarn)->max_positions, 4096u);
  EXPECT_EQ(describe(kYarn, 4096)->max_positions, 4096u);
}

TEST(Rope, DynamicIsDefaultAndRefusesMoreThanTheOriginalLength_MOD2) {
  const char* const kDynamic =
      R"("max_position_embeddings": 1024, "rope_scaling": {"type": "dynamic", "factor": 4.0})";
  EXPECT_EQ(describe(kDynamic)->ropes[0].inverse_frequencies,
            describe("")->ropes[0].inverse_frequencies);
  EXPECT_EQ(describe(kDynamic)->max_positions, 1024u);
  EXPECT_EQ(error_of(kDynamic, 2048), "a context of 2048 tokens is more than the model's 1024");
}

TEST(Rope, LongropeChoosesItsFactorsByTheServedContext_MOD2) {
  const char* const kLong =
      R"("original_max_position_embeddings": 128, "rope_scaling": {"type": "su", "short_factor": [1,1,1,1,1,1,1,2],
    "long_factor": [4,4,4,4,4,4,4,4]})";
  const auto whole = describe(kLong), at_original = describe(kLong, 128),
             beyond = describe(kLong, 129);
  ASSERT_TRUE(whole && at_original && beyond);
  EXPECT_EQ(whole->rope_choice, "longrope:long");
  EXPECT_EQ(beyond->rope_choice, "longrope:long");
  EXPECT_EQ(at_original->rope_choice, "longrope:short");
  EXPECT_DOUBLE_EQ(whole->ropes[0].inverse_frequencies[0], 0.25);
  EXPECT_DOUBLE_EQ(at_original->ropes[0].inverse_frequencies[0], 1.0);
  // 1024 / 128 = 8: sqrt(1 + ln 8 / ln 128), the same for both choices.
  EXPECT_NEAR(whole->ropes[0].attention_factor, std::sqrt(1.0 + std::log(8.0) / std::log(128.0)),
              1e-15);
  EXPECT_EQ(whole->ropes[0].attention_factor, at_original->ropes[0].attention_factor);
}

TEST(Rope, GgufFilesMayAskForInterleavedPairs_MOD52) {
  EXPECT_FALSE(describe("")->ropes[0].interleaved);
  EXPECT_TRUE(describe("\"kvasir_rope_interleaved\": true")->ropes[0].interleaved);
}

}  // namespace
}  // namespace kvasir::model
