// Reading config.json of families that differ from Llama in their attention and blocks: Gemma,
// Cohere 2, gpt-oss (MOD-22…25, 32, 34).
#include <gtest/gtest.h>

#include <cmath>

#include "model/families.h"
#include "model/testing/model_folder.h"

namespace kvasir::model {
namespace {

// `members` follow a small model's sizes; the last of equal names counts.
Result<DecoderConfig> describe(std::string_view architecture,
                               std::string_view members,
                               const std::vector<TestTensor>& tensors = {
                                   {"unused", "F32", {1}, std::string(4, '\0')}}) {
  std::string config = "{\"architectures\": [\"" + std::string(architecture) + "\"],";
  config +=
      R"("hidden_size": 96, "vocab_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 6, "intermediate_size": 128, "head_dim": 16,
         "max_position_embeddings": 1024)";
  config.append(members.empty() ? "" : ", ").append(members).append("}");
  const ModelFolder folder(config, tensors);
  const auto files = formats::ModelFiles::open(folder.path());
  if (!files) return files.error();
  return describe_model(*files, 0);
}

std::string error_of(std::string_view architecture, std::string_view members) {
  const auto config = describe(architecture, members);
  return config ? "no error" : config.error().what;
}

std::string types_of(const DecoderConfig& config) {  // "ssf": two sliding layers, a full one
  std::string out;
  for (const LayerSpec& layer : config.layers)
    out += layer.type == LayerType::sliding ? (layer.attention.window ? 's' : 'w') : 'f';
  return out;
}

constexpr const char *kGemma2 = "Gemma2ForCausalLM", *kGemma3 = "Gemma3ForCausalLM",
                     *kGemma4 = "Gemma4ForCausalLM", *kCohere2 = "Cohere2ForCausalLM",
                     *kGptOss = "GptOssForCausalLM";

TEST(Gemma, ScalesEmbeddingsByTheRootInTheTablesType_MOD22) {
  const auto type = [](const char* dtype, std::size_t size) {
    const auto config = describe(
        kGemma2, "",
        {{"model.embed_tokens.weight", dtype, {100, 96}, std::string(100 * 96 * size, '\0')}});
    EXPECT_TRUE(config) << config.error().what;
    EXPECT_EQ(config->embedding_scale, std::sqrt(96.0f));
    return config->embedding_scale_type;
  };
  EXPECT_EQ(type("BF16", 2), DType::bf16);
  EXPECT_EQ(type("F32", 4), DType::f32);
  EXPECT_EQ(type("F16", 2), DType::f16);
}

TEST(Gemma, SecondHasSoftCapsAndSlidesOnEveryOtherLayer_MOD22) {
  const auto config = describe(kGemma2, R"("sliding_window": 24, "query_pre_attn_scalar": 64)");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(types_of(*config), "sfsfsf");
  EXPECT_FLOAT_EQ(config->layers[0].attention.scale, 0.125f);
  EXPECT_EQ(config->layers[0].attention.softcap, 50.0f);
  EXPECT_EQ(config->logit_softcap, 30.0f);
  EXPECT_TRUE(config->norm_plus_one && config->tied_head);
  EXPECT_EQ(config->layers[0].mlp.activation, ops::Activation::gelu_tanh);

  const auto plain =
      describe(kGemma2, R"("attn_logit_softcapping": null, "final_logit_softcapping": null)");
  EXPECT_EQ(plain->layers[0].attention.softcap, 0.0f);
  EXPECT_EQ(plain->logit_softcap, 0.0f);
  EXPECT_NE(error_of(kGemma2, R"("query_pre_attn_scalar": 0)").find("'query_pre_attn_scalar' must"),
            std::string::npos);
}

TEST(Gemma, ThirdReadsAPublishedWrapperThatStatesLittle_MOD4_MOD23) {
  const ModelFolder folder(
      R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
          "vision_config": {"hidden_size": 1152}, "text_config": {"hidden_size": 2560,
          "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
          "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})");
  const auto files = formats::ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;
  const auto config = describe_model(*files, 0);
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(config->family, "gemma3");
  EXPECT_EQ(types_of(*config), "sssssfsssssfsssssfsssssfsssssfssss");
  const AttentionSpec &sliding = config->layers[0].attention, &full = config->layers[5].attention;
  EXPECT_EQ(sliding.n_heads, 8u);
  EXPECT_EQ(sliding.n_kv_heads, 4u);
  EXPECT_EQ(sliding.head_dim, 256u);
  EXPECT_FLOAT_EQ(sliding.scale, 1.0f / 16.0f);
  EXPECT_EQ(sliding.qk_norm, QkNorm::per_head);
  EXPECT_EQ(config->vocab, 262208u);
  // Pair 64 of 128: theta^(-1/2); only the full layers' rope is stretched.
  EXPECT_NEAR(config->ropes[*sliding.rope].inverse_frequencies[64], 1e-2, 1e-12);
  EXPECT_NEAR(config->ropes[*full.rope].inverse_frequencies[64], 1e-3 / 8, 1e-12);
}

TEST(Gemma, ThirdRefusesTheBidirectionalVariant) {
  EXPECT_NE(error_of(kGemma3, R"("use_bidirectional_attention": true)")
                .find("'use_bidirectional_attention' is not supported"),
            std::string::npos);
}

TEST(Gemma, FourthGivesFullLayersHeadsAndARopeOfTheirOwn_MOD24) {
  const auto config = describe(kGemma4, R"("sliding_window": 24, "global_head_dim": 32,
      "attention_k_eq_v": true, "num_global_key_value_heads": 1)");
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(types_of(*config), "sssssf");
  const AttentionSpec &sliding = config->layers[0].attention, &full = config->layers[5].attention;
  EXPECT_EQ(sliding.head_dim, 16u);
  EXPECT_EQ(full.head_dim, 32u);
  EXPECT_EQ(full.n_kv_heads, 1u);
  EXPECT_EQ(full.scale, 1.0f);
  EXPECT_TRUE(full.v_is_k && full.v_norm && sliding.v_norm && !sliding.v_is_k);
  EXPECT_EQ(full.projected_width(), full.q_width() + full.kv_width());
  const auto& rotating = config->ropes[*full.rope].inverse_frequencies;
  ASSERT_EQ(rotating.size(), 16u);  // a quarter of the head's pairs turn, by powers over all of it
  EXPECT_NEAR(rotating[1], std::pow(1e6, -2.0 / 32), 1e-12);
  EXPECT_GT(rotating[3], 0.0);
  EXPECT_EQ(rotating[4], 0.0);
  EXPECT_EQ(config->ropes[*sliding.rope].inverse_frequencies.size(), 8u);
  EXPECT_EQ(kv_list_of(*config)[5], (KvLayerSpec{.n_kv_heads = 1, .head_dim = 32, .window = 0}));
}

TEST(Gemma, FourthIgnoresGlobalKeyHeadsUnlessKeysAreValues_MOD25) {
  const auto config =
      describe(kGemma4, R"("global_head_dim": 32, "num_global_key_value_heads": 1)");
  EXPECT_EQ(config->layers[5].attention.n_kv_heads, 2u);
}

TEST(Gemma, FourthTakesSingleLayersShapes_MOD24) {
  const auto config =
      describe(kGemma4, R"("per_layer_config": {"2": {"head_dim": 64, "num_key_value_heads": 4}})");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->layers[2].attention.head_dim, 64u);
  EXPECT_EQ(config->layers[2].attention.n_kv_heads, 4u);
  EXPECT_EQ(config->layers[5].attention.head_dim, 16u);
  EXPECT_NE(error_of(kGemma4, R"("per_layer_config": {"2": {"sliding_window": 64}})")
                .find("'per_layer_config.2.sliding_window' is not supported for single layers"),
            std::string::npos);
  EXPECT_NE(error_of(kGemma4, R"("per_layer_config": {"2": {"num_key_value_heads": 3}})")
                .find("must be a multiple of num_key_value_heads"),
            std::string::npos);
}

TEST(Gemma, FourthEndsWithAFullLayerWhateverItsTypesSay) {
  const auto config = describe(kGemma4, R"("sliding_window": 24, "layer_types":
      ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
       "sliding_attention", "sliding_attention"])");
  EXPECT_EQ(types_of(*config), "fssssf");
}

constexpr const char* kTypes = R"("sliding_window": 24, "global_head_dim": 32, "layer_types":
    ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
     "sliding_attention", "full_attention"])";

TEST(Gemma, FourthsLastLayersBorrowFromTheLastOfTheirType_KV41) {
  const auto config = describe(kGemma4, std::string(kTypes) +
                                            R"(, "num_kv_shared_layers": 3,
      "use_double_wide_mlp": true)");
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(config->layers[2].attention.donor, std::nullopt);
  EXPECT_EQ(config->layers[3].attention.donor, 1u);
  EXPECT_EQ(config->layers[4].attention.donor, 1u);
  EXPECT_EQ(config->layers[5].attention.donor, 2u);
  EXPECT_EQ(config->layers[5].attention.qkv_width(), 4u * 32);
  EXPECT_EQ(config->layers[2].mlp.intermediate, 128u);
  EXPECT_EQ(config->layers[3].mlp.intermediate, 256u);
  EXPECT_EQ(kv_list_of(*config).size(), 3u);
  EXPECT_EQ(kv_entries_of(*config), (std::vector<std::uint32_t>{0, 1, 2, 1, 1, 2}));
}

TEST(Gemma, FourthRefusesLayersWithNothingToBorrow_KV41) {
  const auto error = [](std::string_view more) {
    return error_of(kGemma4, std::string(kTypes) + ", " + std::string(more));
  };
  EXPECT_NE(error(R"("num_kv_shared_layers": 6)").find("must be below num_hidden_layers"),
            std::string::npos);
  EXPECT_NE(error(R"("num_kv_shared_layers": 4)").find("leaves a layer without one of its type"),
            std::string::npos);
  EXPECT_NE(error(R"("num_kv_shared_layers": 3, "per_layer_config": {"5": {"head_dim": 64}})")
                .find("makes a layer read keys of another shape"),
            std::string::npos);
  EXPECT_NE(error(R"("use_bidirectional_attention": "all")").find("'all' is not supported"),
            std::string::npos);
  EXPECT_EQ(error(R"("use_bidirectional_attention": "vision")"), "no error");
}

TEST(Gemma, FourthHasInputsForEachLayerOnlyWithTheirTable_MOD24) {
  EXPECT_EQ(describe(kGemma4, "")->per_layer_input, 0u);
  EXPECT_EQ(describe(kGemma4, R"("hidden_size_per_layer_input": 16)")->per_layer_inputs_width(),
            6u * 16);
  EXPECT_NE(error_of(kGemma4, R"("hidden_size_per_layer_input": 16,
                                 "vocab_size_per_layer_input": 50)")
                .find("'vocab_size_per_layer_input' must be vocab_size"),
            std::string::npos);
  EXPECT_NE(error_of(kGemma4, R"("hidden_size_per_layer_input": 1000000)").find("too wide"),
            std::string::npos);
}

TEST(Gemma, FourthMayHaveExpertsBesideItsMlp_MOD25) {
  const auto config = describe(kGemma4, R"("enable_moe_block": true, "num_experts": 8,
      "top_k_experts": 2, "moe_intermediate_size": 32)");
  ASSERT_TRUE(config) << config.error().what;
  const LayerSpec& layer = config->layers[0];
  EXPECT_TRUE(layer.moe && layer.has_mlp());
  EXPECT_TRUE(layer.moe->router_norm && layer.moe->expert_scales && layer.moe->renormalize);
  EXPECT_EQ(layer.moe->layout, ExpertLayout::fused);
  EXPECT_NE(error_of(kGemma4, R"("enable_moe_block": true, "num_experts": 8, "top_k_experts": 9,
      "moe_intermediate_size": 32)")
                .find("'top_k_experts' must not exceed"),
            std::string::npos);
}

TEST(Cohere2, RotatesInterleavedPairsOfSlidingLayersAlone_MOD32) {
  const auto config = describe(kCohere2, R"("sliding_window": 24, "layer_norm_eps": 1e-3)");
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(types_of(*config), "sssfss");
  EXPECT_TRUE(config->layers[0].attention.rope);
  EXPECT_FALSE(config->layers[3].attention.rope);
  EXPECT_TRUE(config->ropes[0].interleaved);
  EXPECT_EQ(config->norm_kind, NormKind::layer);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-3f);
  EXPECT_FLOAT_EQ(config->logit_scale, 0.0625f);
  EXPECT_TRUE(config->parallel_blocks && config->tied_head);
  EXPECT_TRUE(config->names.mlp_in.empty());
}

// What a layer is called decides about its rope, also where its window covers the whole context.
TEST(Cohere2, KeepsTheRopeOfSlidingLayersWithAWideWindow_MOD3) {
  const auto config = describe(kCohere2, R"("sliding_window": 4096)");
  EXPECT_EQ(types_of(*config), "wwwfww");
  EXPECT_TRUE(config->layers[0].attention.rope);
}

TEST(GptOss, HasSinksBiasesAndClampedExperts_MOD34) {
  const auto config = describe(kGptOss, R"("num_local_experts": 4, "num_experts_per_tok": 2,
      "sliding_window": 24, "attention_bias": true)");
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_EQ(types_of(*config), "sfsfsf");
  const AttentionSpec& a = config->layers[0].attention;
  EXPECT_TRUE(a.sinks && a.qkv_bias && a.out_bias);
  const MoeSpec& moe = *config->layers[0].moe;
  EXPECT_EQ(moe.score, ops::RouterScore::softmax_chosen);
  EXPECT_EQ(moe.activation, ops::Activation::clamped_swiglu);
  EXPECT_EQ(moe.activation_limit, 7.0f);
  EXPECT_EQ(moe.layout, ExpertLayout::fused_interleaved);
  EXPECT_TRUE(moe.bias && moe.inputs_first);
  EXPECT_NE(error_of(kGptOss, R"("num_local_experts": 4, "num_experts_per_tok": 2,
      "swiglu_limit": 0)")
                .find("'swiglu_limit' must be"),
            std::string::npos);
}

// With truncate false the ramp of yarn begins and ends between pairs.
TEST(GptOss, LeavesTheRampOfYarnUnrounded_MOD34) {
  const char* const kRest =
      R"("num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "yarn",
         "factor": 32.0, "original_max_position_embeddings": 4096, "rope_theta": 150000.0, "truncate": )";
  const auto exact = describe(kGptOss, kRest + std::string("false}"));
  const auto rounded = describe(kGptOss, kRest + std::string("true}"));
  ASSERT_TRUE(exact && rounded);
  const double low = 16 * std::log(4096 / (32 * 2 * M_PI)) / (2 * std::log(150000.0)),
               high = 16 * std::log(4096 / (2 * M_PI)) / (2 * std::log(150000.0));
  const double base = std::pow(150000.0, -2.0 * 3 / 16), ramp = (3 - low) / (high - low);
  EXPECT_NEAR(exact->ropes[0].inverse_frequencies[3], base / 32 * ramp + base * (1 - ramp), 1e-15);
  EXPECT_NE(exact->ropes[0].inverse_frequencies[3], rounded->ropes[0].inverse_frequencies[3]);
}

}  // namespace
}  // namespace kvasir::model
