// Checkpoints with recurrent layers (MOD-19…21, 33, 40…43): their dialects, fusions, quantized
// forms and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"
#include "model/families.h"
#include "model/testing/checkpoint.h"

namespace kvasir::model {
namespace {

bool loads_as(const Checkpoint& changed, std::string_view golden) {
  const ModelFolder folder(changed.config, changed.tensors);
  return same_bits(logits_of(load(folder.path()), {20}),
                   logits_of(load(golden_folder(golden)), {20}));
}

std::vector<float> values_of(const TestTensor& t) {
  std::vector<float> out(t.bytes.size() / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    BFloat16 half;
    std::memcpy(&half, &t.bytes[2 * i], 2);
    out[i] = to_f32(half);
  }
  return out;
}

void store_f32(TestTensor& t, const std::vector<float>& values) {
  t.dtype = "F32";
  t.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

bool is_centred_norm(std::string_view name) {
  return name == "model.norm.weight" || name.ends_with("layernorm.weight") ||
         name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight");
}

void turn_convolutions(Checkpoint& c) {
  for (TestTensor& t : c.tensors) {
    if (t.name.ends_with("conv1d.weight") || t.name.ends_with("conv.weight"))
      std::swap(t.shape[1], t.shape[2]);
  }
}

void shift_norms(Checkpoint& c, float by) {
  for (TestTensor& t : c.tensors) {
    if (!is_centred_norm(t.name)) continue;
    std::vector<float> values = values_of(t);
    for (float& x : values) x += by;
    store_f32(t, values);
  }
}

class Hybrids : public testing::TestWithParam<const char*> {};

TEST_P(Hybrids, OriginalAndConvertedFilesAreOneModel_MOD43) {
  SKIP_WITHOUT(GetParam());
  Checkpoint converted(GetParam());
  turn_convolutions(converted);
  shift_norms(converted, 1.0f);
  EXPECT_TRUE(loads_as(converted, GetParam()));
}

TEST_P(Hybrids, NormsOfAnotherDialectThanTheConvolutionsAreRefused_MOD43) {
  SKIP_WITHOUT(GetParam());
  Checkpoint turned(GetParam()), low(GetParam()), high(GetParam());
  turn_convolutions(turned);
  shift_norms(low, -1.0f);
  shift_norms(high, 20.0f);
  for (const Checkpoint* c : {&turned, &low, &high}) {
    EXPECT_NE(c->load_error().find("as a norm's weight: norms and convolutions are of different "
                                   "dialects"),
              std::string::npos)
        << c->load_error();
  }
}

TEST_P(Hybrids, NamesWhatItMissesOrMisreads_MOD5) {
  SKIP_WITHOUT(GetParam());
  for (const char* const name :
       {"model.layers.0.linear_attn.A_log", "model.layers.1.linear_attn.dt_bias",
        "model.layers.2.linear_attn.norm.weight", "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.0.linear_attn.out_proj.weight", "model.layers.3.self_attn.q_proj.weight"}) {
    Checkpoint c(GetParam());
    c.drop(name);
    EXPECT_NE(c.load_error().find("'" + std::string(name) + "' is missing"), std::string::npos)
        << c.load_error();
  }
  Checkpoint c(GetParam());
  c.named("model.layers.1.linear_attn.conv1d.weight").shape = {4, 1, 128};
  EXPECT_NE(c.load_error().find("conv1d.weight' has shape"), std::string::npos) << c.load_error();
}

// Three delta layers and one of attention: their matrices, states and steps.
TEST_P(Hybrids, CostCountsStatesOnce) {
  SKIP_WITHOUT(GetParam());
  const Loaded hybrid = load(golden_folder(GetParam()));
  const std::uint64_t state = 3 * 128 * 2 + 4 * 16 * 16 * 4, kv = 2 * 2 * 16 * 2;
  EXPECT_EQ(hybrid.model->cost(1, 99).kv_bytes, 3 * 2 * state + kv * (100 + 1));
  EXPECT_EQ(hybrid.model->cost(8, 0).kv_bytes, 3 * 2 * state + kv * (8 + 8));
  const std::uint64_t recurrence = 4 * 128 + 3 * 64 * 16;
  EXPECT_EQ(hybrid.model->cost(2, 0).attention_flops, 3 * 2 * 2 * recurrence + 4 * 64 * 3);
}

INSTANTIATE_TEST_SUITE_P(Models, Hybrids, testing::Values("qwen3-next", "qwen3_5", "qwen3_5-moe"));

TEST(Hybrid, LayersFollowTheIntervalWhereTheirTypesAreNotNamed_MOD40) {
  SKIP_WITHOUT("qwen3_5");
  Checkpoint c("qwen3_5");
  const std::size_t begin = c.config.find("\"layer_types\""), end = c.config.find(']', begin);
  ASSERT_NE(begin, std::string::npos);
  c.config.replace(begin, end - begin + 1, "\"layer_types\": null");
  EXPECT_TRUE(loads_as(c, "qwen3_5"));
}

TEST(Hybrid, TakesAWrapperWithTowersAndDraftHeads_MOD4) {
  SKIP_WITHOUT("qwen3_5-moe");
  Checkpoint c("qwen3_5-moe");
  for (TestTensor& t : c.tensors) {
    if (t.name.starts_with("model.")) t.name.insert(5, ".language_model");
  }
  c.tensors.push_back({"model.visual.x", "BF16", {2}, std::string(4, '\0')});
  c.tensors.push_back({"mtp.norm.weight", "BF16", {2}, std::string(4, '\0')});
  c.config =
      R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
                 "vision_config": {"depth": 1}, "text_config": )" +
      c.config + "}";
  EXPECT_TRUE(loads_as(c, "qwen3_5-moe"));
}

// Published files fuse the experts of a layer into two stacks.
TEST(Hybrid, TakesExpertsFusedOrApart_MOD21) {
  SKIP_WITHOUT("qwen3_5-moe");
  Checkpoint c("qwen3_5-moe");
  for (const std::string layer : {"0", "1", "2", "3"}) {
    const std::string stem = "model.layers." + layer + ".mlp.experts.";
    TestTensor gate_up{stem + "gate_up_proj", "BF16", {8, 96, 64}, ""},
        down{stem + "down_proj", "BF16", {8, 64, 48}, ""};
    for (int e = 0; e < 8; ++e) {
      const std::string expert = stem + std::to_string(e) + ".";
      gate_up.bytes += c.named(expert + "gate_proj.weight").bytes;
      gate_up.bytes += c.named(expert + "up_proj.weight").bytes;
      down.bytes += c.named(expert + "down_proj.weight").bytes;
      for (const char* const part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
        c.drop(expert + part);
    }
    c.tensors.push_back(std::move(gate_up));
    c.tensors.push_back(std::move(down));
  }
  EXPECT_TRUE(loads_as(c, "qwen3_5-moe"));
}

constexpr std::uint32_t kGroup = 32;

// A 4-bit matrix with scales and zero points that f16 holds exactly.
struct Codes {
  Codes(std::uint32_t outputs, std::uint32_t inputs) : n_out(outputs), n_in(inputs) {
    std::mt19937 rng(n_out);
    const auto below = [&](unsigned n) { return static_cast<std::uint32_t>(rng() % n); };
    for (std::uint32_t i = 0; i < n_out * n_in; ++i) codes.push_back(below(16));
    for (std::uint32_t i = 0; i < n_out * n_in / kGroup; ++i) {
      scales.push_back(std::ldexp(1.0f, -6 - static_cast<int>(below(3))));
      zeros.push_back(1 + below(15));
    }
  }
  std::uint32_t group_of(std::uint32_t o, std::uint32_t i) const {
    return o * (n_in / kGroup) + i / kGroup;
  }
  TestTensor dense(const std::string& name) const {
    TestTensor out{name, "F32", {n_out, n_in}, ""};
    std::vector<float> values;
    for (std::uint32_t o = 0; o < n_out; ++o) {
      for (std::uint32_t i = 0; i < n_in; ++i) {
        const std::uint32_t g = group_of(o, i);
        values.push_back(scales[g] * (float(codes[o * n_in + i]) - float(zeros[g])));
      }
    }
    store_f32(out, values);
    return out;
  }
  std::uint32_t n_out, n_in;
  std::vector<std::uint32_t> codes, zeros;
  std::vector<float> scales;
};

void append(TestTensor& t, std::uint32_t word) {
  t.bytes.append(reinterpret_cast<const char*>(&word), 4);
}
void append(TestTensor& t, float x) { t.bytes.append(reinterpret_cast<const char*>(&x), 4); }

void add_affine(Checkpoint& c, const std::string& module, const Codes& q) {
  TestTensor weight{module + ".weight", "U32", {q.n_out, q.n_in / 8}, ""},
      scales{module + ".scales", "F32", {q.n_out, q.n_in / kGroup}, ""},
      biases{module + ".biases", "F32", {q.n_out, q.n_in / kGroup}, ""};
  for (std::size_t i = 0; i < q.codes.size(); i += 8) {
    std::uint32_t word = 0;
    for (std::uint32_t j = 0; j < 8; ++j) word |= q.codes[i + j] << (4 * j);
    append(weight, word);
  }
  for (std::size_t g = 0; g < q.scales.size(); ++g) {
    append(scales, q.scales[g]);
    append(biases, -q.scales[g] * float(q.zeros[g]));
  }
  c.tensors.insert(c.tensors.end(), {weight, scales, biases});
}

// Codes of one input lie along the outputs: rows are no runs of bytes.
void add_gptq(Checkpoint& c, const std::string& module, const Codes& q) {
  TestTensor weight{module + ".qweight", "I32", {q.n_in / 8, q.n_out}, ""},
      zeros{module + ".qzeros", "I32", {q.n_in / kGroup, q.n_out / 8}, ""},
      scales{module + ".scales", "F32", {q.n_in / kGroup, q.n_out}, ""};
  for (std::uint32_t i = 0; i < q.n_in; i += 8) {
    for (std::uint32_t o = 0; o < q.n_out; ++o) {
      std::uint32_t word = 0;
      for (std::uint32_t j = 0; j < 8; ++j) word |= q.codes[o * q.n_in + i + j] << (4 * j);
      append(weight, word);
    }
  }
  for (std::uint32_t i = 0; i < q.n_in; i += kGroup) {
    for (std::uint32_t o = 0; o < q.n_out; ++o) append(scales, q.scales[q.group_of(o, i)]);
    for (std::uint32_t o = 0; o < q.n_out; o += 8) {
      std::uint32_t word = 0;
      for (std::uint32_t j = 0; j < 8; ++j) word |= (q.zeros[q.group_of(o + j, i)] - 1) << (4 * j);
      append(zeros, word);
    }
  }
  c.tensors.insert(c.tensors.end(), {weight, zeros, scales});
}

// Projections whose rows change places at load.
TEST(Hybrid, RowsChangePlacesInQuantizedProjectionsToo_MOD19) {
  SKIP_WITHOUT("qwen3-next");
  Checkpoint dense("qwen3-next"), affine("qwen3-next"), gptq("qwen3-next");
  for (const auto& [module, n_out] : {std::pair{"model.layers.0.linear_attn.in_proj_qkvz", 192u},
                                      {"model.layers.1.linear_attn.in_proj_ba", 8u},
                                      {"model.layers.3.self_attn.q_proj", 128u}}) {
    const Codes codes(n_out, 64);
    const std::string name = std::string(module) + ".weight";
    for (Checkpoint* c : {&dense, &affine, &gptq}) c->drop(name);
    dense.tensors.push_back(codes.dense(name));
    add_affine(affine, module, codes);
    add_gptq(gptq, module, codes);
  }
  affine.config.insert(1, R"("quantization": {"group_size": 32, "bits": 4},)");
  gptq.config.insert(
      1, R"("quantization_config": {"quant_method": "gptq", "group_size": 32, "bits": 4},)");
  const ModelFolder a(dense.config, dense.tensors), b(affine.config, affine.tensors),
      c(gptq.config, gptq.tensors);
  const std::vector<float> want = logits_of(load(a.path()), {20});

  EXPECT_TRUE(same_bits(logits_of(load(b.path()), {20}), want));
  EXPECT_TRUE(same_bits(logits_of(load(c.path()), {20}), want));
}

// A row of scales is for 128 rows of a matrix, which do not stay together.
TEST(Hybrid, RowsChangePlacesWithTheirF8Scales_MOD19) {
  SKIP_WITHOUT("qwen3-next");
  constexpr std::uint32_t kOut = 192, kIn = 64;
  constexpr unsigned char kE4m3[] = {0x00, 0x30, 0x38, 0x3c, 0xb0, 0xb8};
  constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, -0.5f, -1.0f}, kScales[] = {0.25f, 0.125f};
  const std::string name = "model.layers.0.linear_attn.in_proj_qkvz.weight";
  TestTensor f8{name, "F8_E4M3", {kOut, kIn}, ""};
  std::vector<float> values;
  std::mt19937 rng(3);
  for (std::uint32_t i = 0; i < kOut * kIn; ++i) {
    const auto pick = rng() % 6;
    f8.bytes.push_back(static_cast<char>(kE4m3[pick]));
    values.push_back(kValues[pick] * kScales[i / kIn / 128]);
  }
  TestTensor scales{name + "_scale_inv", "F32", {2, 1}, ""};
  store_f32(scales, {kScales[0], kScales[1]});
  Checkpoint dense("qwen3-next"), packed("qwen3-next");
  dense.named(name).dtype = "F32";
  store_f32(dense.named(name), values);
  packed.drop(name);
  packed.tensors.insert(packed.tensors.end(), {f8, scales});
  const ModelFolder a(dense.config, dense.tensors), b(packed.config, packed.tensors);

  EXPECT_TRUE(same_bits(logits_of(load(b.path()), {20}), logits_of(load(a.path()), {20})));
}

TEST(Lfm2, TakesConvertedConvolutions_MOD43) {
  SKIP_WITHOUT("lfm2");
  Checkpoint c("lfm2");
  turn_convolutions(c);
  EXPECT_TRUE(loads_as(c, "lfm2"));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

DecoderConfig described(const Checkpoint& c, std::string_view member, const std::string& value) {
  const std::size_t at = c.config.find("\"" + std::string(member) + "\":");
  std::string config = c.config;
  if (at != std::string::npos) config.replace(at + 1, 1, "_");
  config.insert(1, "\"" + std::string(member) + "\": " + value + ",");
  const ModelFolder folder(config, c.tensors);
  const auto files = formats::ModelFiles::open(folder.path());
  const auto out = describe_model(*files, 0);
  EXPECT_TRUE(out) << out.error().what;
  return out ? *out : DecoderConfig();
}

TEST(Lfm2, WidthOfItsMlpIsAdjustedAsStated_MOD33) {
  SKIP_WITHOUT("lfm2");
  const Checkpoint c("lfm2");
  const auto width = [&](const char* member, const char* value) {
    return described(c, member, value).layers[0].mlp.intermediate;
  };
  EXPECT_EQ(width("intermediate_size", "96"), 256u);
  EXPECT_EQ(width("intermediate_size", "12288"), 8192u);
  EXPECT_EQ(width("intermediate_size", "10240"), 6912u);
  EXPECT_EQ(width("block_ff_dim", "6656"), 4608u);
  EXPECT_EQ(width("block_auto_adjust_ff_dim", "false"), 96u);
  EXPECT_EQ(width("block_multiple_of", "64"), 64u);
  EXPECT_EQ(width("block_ffn_dim_multiplier", "5.0"), 512u);
}

TEST(Lfm2, FullLayersMayBeNamedByNumber_MOD33) {
  SKIP_WITHOUT("lfm2");
  Checkpoint c("lfm2");
  c.config = replaced(c.config, "\"layer_types\"", "\"_layer_types\"");
  const DecoderConfig d = described(c, "full_attn_idxs", "[1]");
  ASSERT_EQ(d.layers.size(), 3u);
  EXPECT_TRUE(d.layers[0].short_conv && d.layers[2].short_conv);
  EXPECT_FALSE(d.layers[1].is_recurrent());
  const RecurrentSpec tail{.conv_kernel = 3, .n_channels = 64};
  EXPECT_EQ(kv_list_of(d), (KvList{{.recurrent = tail},
                                   {.n_kv_heads = 2, .head_dim = 16, .window = 0},
                                   {.recurrent = tail}}));
}

TEST(Lfm2, ConvolutionsMayHaveBiases_MOD33) {
  SKIP_WITHOUT("lfm2");
  Checkpoint c("lfm2");
  c.config = replaced(c.config, "\"conv_bias\": false", "\"conv_bias\": true");
  EXPECT_NE(c.load_error().find("'model.layers.0.conv.in_proj.bias' is missing"), std::string::npos)
      << c.load_error();
  for (const std::string layer : {"0", "2"}) {
    for (const auto& [part, n] : {std::pair{"in_proj", 192u}, {"conv", 64u}, {"out_proj", 64u}}) {
      c.tensors.push_back({"model.layers." + layer + ".conv." + part + ".bias",
                           "F32",
                           {n},
                           std::string(n * 4, '\0')});
    }
  }
  EXPECT_TRUE(loads_as(c, "lfm2"));
  store_f32(c.named("model.layers.0.conv.conv.bias"), std::vector<float>(64, 0.5f));
  EXPECT_FALSE(loads_as(c, "lfm2"));
}

}  // namespace
}  // namespace kvasir::model
