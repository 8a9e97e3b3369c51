#include "kv/kv_scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/kv_signature.h"

namespace kvasir::kv {
namespace {

TEST(KvScheme, KeyOfTheExactKindIsItsType_KV2) {
  EXPECT_EQ(KvScheme{}.cache_key(), "bf16");
  EXPECT_EQ(KvScheme{.type = DType::f32}.cache_key(), "f32");
}

TEST(KvScheme, KeysNameEveryInput_KV2) {
  using enum KvSchemeKind;
  const auto key = [](const KvScheme& scheme) { return scheme.cache_key(); };
  EXPECT_EQ(key({.kind = affine_uniform, .bits = 4}), "kv4-start5000");
  EXPECT_EQ(key({.kind = affine_uniform, .bits = 4, .start = 0}), "kv4");
  EXPECT_EQ(key({.kind = affine_uniform, .bits = 8, .group = 32, .start = 7}), "kv8-g32-start7");
  EXPECT_EQ(key({.kind = affine_config}), "config");
  EXPECT_EQ(key({.kind = affine_config, .start = 9}), "config-start9");
  EXPECT_EQ(key({.kind = turbo}), "turbo-k8v3");
  EXPECT_EQ(key({.kind = turbo, .k_bits = 4, .v_bits = 2, .start = 600}), "turbo-k4v2-start600");
  EXPECT_EQ(key({.kind = turbo, .start = 0, .is_eager = true}), "turbo-k8v3-eager");
  EXPECT_EQ(key({.kind = turbo, .type = DType::f16, .start = 0, .first_span = 64}),
            "turbo-k8v3-span64-f16");
}

TEST(KvScheme, RequestsResolveInOrder_KV3_KV5) {
  const auto key = [](const KvSchemeRequest& request) {
    const auto scheme = resolve_kv_scheme(request);
    return scheme ? scheme->cache_key() : scheme.error().what;
  };
  EXPECT_EQ(key({}), "bf16");
  EXPECT_EQ(key({.quant = "off", .start = "7"}), "bf16");
  EXPECT_EQ(key({.quant = "off", .start = "-1"}), "quantizedKvStart must be a nonnegative integer");
  EXPECT_EQ(key({.quant = "4", .start = "1.5"}), "quantizedKvStart must be a nonnegative integer");
  EXPECT_EQ(key({.quant = "4", .start = "9007199254740992"}),
            "quantizedKvStart must be a nonnegative integer");
  EXPECT_EQ(key({.quant = "4"}), "kv4");
  EXPECT_EQ(key({.quant = "8", .start = "eager"}), "kv8-eager");
  EXPECT_EQ(key({.quant = "8", .start = "9007199254740991"}), "kv8-start9007199254740991");
  EXPECT_EQ(key({.quant = "4", .group = 128}), "kv4-g128");
  EXPECT_EQ(key({.quant = "turbo"}), "turbo-k8v3");
  EXPECT_EQ(key({.quant = "turbo:k2v8", .start = "5"}), "turbo-k2v8-start5");
  EXPECT_EQ(key({.quant = "config"}), "model has no kv_config.json (--kv-quant config)");
  EXPECT_EQ(key({.quant = "config", .config = std::vector<KvLayerBits>{}}),
            "model has no kv_config.json (--kv-quant config)");
  EXPECT_EQ(key({.quant = "config", .requires_config = false}), "bf16");
  EXPECT_EQ(key({.quant = "config", .config = std::vector<KvLayerBits>{{0, 4, 64}}}), "config");
  EXPECT_EQ(key({.quant = "config", .start = "9", .config = std::vector<KvLayerBits>{{0, 4, 64}}}),
            "config-start9");
  EXPECT_EQ(key({.quant = ""}), "bf16");
  EXPECT_EQ(key({.quant = "4", .group = 48}), "kv-group-size must be 32, 64 or 128");
  for (const char* quant : {"config", "turbo", "turbo:k3v3", "3"})
    EXPECT_EQ(key({.quant = quant, .start = "x"}), "quantizedKvStart must be a nonnegative integer")
        << "the first check";
  for (const char* quant : {"3", "on", "16", "turbo4", "TURBO"})
    EXPECT_EQ(key({.quant = quant}), "kv-quant must be off, config, 4, 8 or turbo[:kKvV]");
  for (const char* quant : {"turbo:k3v3", "turbo:k8v6", "turbo:k8v3x"})
    EXPECT_THAT(key({.quant = quant}), ::testing::HasSubstr("takes K of 2, 4, 5 or 8"));
}

// Whatever else is set, one kind decides: turbo, layers or uniform bits, never a mixture.
TEST(KvScheme, OptionsOfOtherKindsAreIgnored_KV4) {
  using enum KvSchemeKind;
  const KvList list{{2, 128, 0}, {2, 128, 16}};
  const std::vector<KvLayerBits> layers{{1, 4, 32}, {9, 8, 64}};  // there is no layer 9
  const codec::KvCodec codec = codec::affine_kv(8, 128, codec::ScaleType::bf16);
  const KvScheme own[] = {{.kind = exact},
                          {.kind = affine_uniform, .bits = 4, .group = 32, .start = 0},
                          {.kind = turbo, .k_bits = 4, .v_bits = 2, .start = 0},
                          {.kind = named, .k_codec = codec, .v_codec = codec, .start = 0}};
  for (const KvScheme& scheme : own) {
    KvScheme mixed = scheme;
    mixed.layers = layers;
    if (scheme.kind != affine_uniform) mixed.bits = 4, mixed.group = 64;
    if (scheme.kind != turbo) mixed.k_bits = 5, mixed.v_bits = 5;
    if (scheme.kind != named) mixed.k_codec = mixed.v_codec = codec;
    const auto forms = forms_of(mixed, list);
    ASSERT_TRUE(forms) << forms.error().what;
    EXPECT_EQ(*forms, *forms_of(scheme, list)) << scheme.cache_key();
    EXPECT_EQ(mixed.cache_key(), scheme.cache_key());
  }
  const KvScheme config{.kind = affine_config, .bits = 8, .group = 128, .layers = {layers[0]}};
  const auto forms = forms_of(config, list);
  ASSERT_TRUE(forms);
  EXPECT_FALSE((*forms)[0].has_encoded()) << "a layer that is not named stays exact";
  EXPECT_EQ((*forms)[1].k, codec::affine_kv(4, 32, codec::ScaleType::bf16));
  for (const char* quant : {"turbo", "8", "affine:4:64"})
    EXPECT_TRUE(resolve_kv_scheme({.quant = quant, .config = layers})->layers.empty()) << quant;
}

TEST(KvScheme, AnyCodecOfTheListServesByItsName_KV8) {
  const auto key = [](const KvSchemeRequest& request) {
    const auto scheme = resolve_kv_scheme(request);
    return scheme ? scheme->cache_key() : scheme.error().what;
  };
  EXPECT_EQ(key({.quant = "affine:8:32"}), "k-affine-8-32-v-affine-8-32");
  EXPECT_EQ(key({.quant = "affine:8:64,turbo:3", .start = "600"}),
            "k-affine-8-64-v-turbo-3-start600");
  for (const char* quant : {"turbo:3", "affine:8:64,", ",turbo:3", "bf16", "affine:8", "turbo:8,x"})
    EXPECT_EQ(key({.quant = quant}), "kv-quant must be off, config, 4, 8 or turbo[:kKvV]");
  const auto scheme = resolve_kv_scheme({.quant = "affine:4:64,turbo:4", .type = DType::f16});
  ASSERT_TRUE(scheme);
  const auto forms = forms_of(*scheme, {{2, 64, 0}, {2, 64, 16}});
  ASSERT_TRUE(forms);
  for (const KvLayerForm& form : *forms) {
    EXPECT_EQ(form.k, codec::affine_kv(4, 64, codec::ScaleType::f16));
    EXPECT_EQ(form.v, codec::turbo_values_kv(4));
  }
}

TEST(KvScheme, LatentAndRecurrentLayersStayExact_KV7) {
  const KvLayerSpec full{2, 64, 0}, latent{.latent = {.rank = 16, .rope_dim = 8}},
      state{.recurrent = {.conv_kernel = 4, .n_channels = 8}};
  const auto uniform = resolve_kv_scheme({.quant = "8"});
  const auto forms = forms_of(*uniform, {latent, full, state});
  ASSERT_TRUE(forms) << forms.error().what;
  EXPECT_FALSE((*forms)[0].has_encoded());
  EXPECT_TRUE((*forms)[1].has_encoded());
  EXPECT_FALSE((*forms)[2].has_encoded());
  EXPECT_EQ(forms_of(*uniform, {latent, state}).error().what,
            "kv-quant has no effect on this model");
  for (const std::uint32_t layer : {0u, 2u}) {
    const KvScheme config{.kind = KvSchemeKind::affine_config, .layers = {{layer, 8, 64}}};
    EXPECT_THAT(forms_of(config, {latent, full, state}).error().what,
                ::testing::HasSubstr("layer_idx " + std::to_string(layer) + " is a "));
  }
}

TEST(KvScheme, TransitionIsAtLeastTheFirstSpan_KV20_KV22) {
  using enum KvSchemeKind;
  EXPECT_EQ(KvScheme{}.transition(), kNeverEncoded);
  EXPECT_EQ((KvScheme{.kind = turbo}).transition(), 512u);
  EXPECT_EQ((KvScheme{.kind = affine_uniform}).transition(), 5000u);
  EXPECT_EQ((KvScheme{.kind = affine_uniform, .start = 3}).transition(), 512u);
  EXPECT_EQ((KvScheme{.kind = affine_uniform, .start = 600}).transition(), 600u);
  EXPECT_EQ((KvScheme{.kind = affine_uniform, .start = 600, .is_eager = true}).transition(), 0u);
}

TEST(KvScheme, AppliesToLayersThatCanBeStoredOrSaysWhichCannot_KV7) {
  using enum KvSchemeKind;
  const KvLayerSpec full{2, 128, 0}, windowed{2, 128, 16}, odd{2, 80, 0};
  const auto error = [](const KvScheme& scheme, const KvList& list) {
    const auto forms = forms_of(scheme, list);
    return forms ? "" : forms.error().what;
  };
  EXPECT_EQ(error({}, {odd}), "");
  EXPECT_EQ(error({.kind = affine_uniform}, {full, windowed}), "");
  EXPECT_THAT(error({.kind = affine_uniform}, {full, odd}), ::testing::HasSubstr("layer 1"));
  EXPECT_EQ(error({.kind = turbo}, {full, {2, 80, 16}}), "") << "windowed ones are skipped";
  EXPECT_THAT(error({.kind = turbo}, {odd}), ::testing::HasSubstr("head_dim 80"));
  EXPECT_EQ(error({.kind = turbo}, {windowed}), "kv-quant has no effect on this model");
  EXPECT_EQ(n_exact_windowed({.kind = turbo}, {full, windowed}), 1u);
  const KvScheme config{.kind = affine_config, .layers = {{1, 4, 64}}};
  const auto forms = forms_of(config, {full, windowed});
  ASSERT_TRUE(forms);
  EXPECT_FALSE((*forms)[0].has_encoded());
  EXPECT_EQ((*forms)[1].k.bits, 4);
  EXPECT_THAT(error(config, {full}), ::testing::HasSubstr("layer_idx 1"));
}

TEST(KvScheme, ConfigFilesNameTheBadEntry_KV6) {
  const auto error = [](const char* text) {
    const auto entries = parse_kv_config(*json::parse(text));
    return entries ? "" : entries.error().what;
  };
  EXPECT_EQ(error(R"([{"layer_idx":1,"bits":4,"group_size":64,"more":1}])"), "");
  EXPECT_EQ(error("[]"), "");
  EXPECT_THAT(error("{}"), ::testing::HasSubstr("array"));
  EXPECT_THAT(error(R"([{"layer_idx":-1,"bits":4,"group_size":64}])"),
              ::testing::HasSubstr("entry 0: layer_idx"));
  EXPECT_THAT(error(R"([{"layer_idx":0,"bits":5,"group_size":64}])"),
              ::testing::HasSubstr("bits must be 4 or 8"));
  EXPECT_THAT(error(R"([{"layer_idx":0,"bits":4,"group_size":16}])"),
              ::testing::HasSubstr("group_size"));
  EXPECT_THAT(error(R"([{"layer_idx":0,"bits":4,"group_size":64},
                        {"layer_idx":0,"bits":8,"group_size":64}])"),
              ::testing::HasSubstr("entry 1: layer_idx 0 was named before"));
}

TEST(KvScheme, TypeComesFromTheOption_KV1) {
  EXPECT_EQ(*parse_kv_type("bf16"), DType::bf16);
  EXPECT_EQ(*parse_kv_type("f16"), DType::f16);
  EXPECT_EQ(*parse_kv_type("f32"), DType::f32);
  EXPECT_FALSE(parse_kv_type("f64"));
  EXPECT_FALSE(parse_kv_type(""));
}

TEST(KvScheme, BlockSizeIsAPowerOfTwoFrom8To512_KV37) {
  for (const std::uint64_t n : {8, 16, 32, 64, 128, 256, 512}) EXPECT_TRUE(check_block_tokens(n));
  for (const std::uint64_t n : {0, 1, 4, 7, 24, 65, 513, 1024}) {
    const Status status = check_block_tokens(n);
    ASSERT_FALSE(status) << n;
    EXPECT_EQ(status.error().what, "kv block size must be a power of two from 8 to 512");
  }
}

TEST(KvScheme, SignaturesAreParsedIntoTheirParts_KV36) {
  const auto windowed = parse_signature("windowed(4096):bf16:f32");
  ASSERT_TRUE(windowed);
  EXPECT_EQ(windowed->layout, "windowed");
  EXPECT_EQ(windowed->window, 4096u);
  EXPECT_EQ(windowed->k_codec, "bf16");
  EXPECT_EQ(windowed->v_codec, "f32");
  const auto encoded = parse_signature("paged:affine:4:64:turbo:3@512");
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->k_codec, "affine:4:64");
  EXPECT_EQ(encoded->v_codec, "turbo:3");
  EXPECT_EQ(encoded->transition, 512u);
  for (const char* name : {"recurrent", "latent", "latent+index", "mtp", "latent@512"})
    EXPECT_TRUE(parse_signature(name)) << name;
}

TEST(KvScheme, AnythingElseIsAnUnknownSignature_KV36) {
  for (const std::string text : {"",
                                 "paged",
                                 "paged:",
                                 "paged:bf16",
                                 "paged:bf16:",
                                 "paged:bf16:bf16:",
                                 "paged:bf16:bf16:f32",
                                 "paged::bf16",
                                 "paged:bf16:int8",
                                 "paged:affine:5:64:bf16",
                                 "paged:affine:4:63:bf16",
                                 "windowed():bf16:bf16",
                                 "windowed(0):bf16:bf16",
                                 "windowed(-1):bf16:bf16",
                                 "windowed(07):bf16:bf16",
                                 "windowed(4294967296):bf16:bf16",
                                 "windowed(16:bf16:bf16",
                                 "recurrent:bf16",
                                 "paged:bf16:affine:8:64@18446744073709551615",
                                 "latent+",
                                 "paged:bf16:bf16@",
                                 "paged:bf16:bf16@0",
                                 "paged:bf16:bf16@x",
                                 "Paged:bf16:bf16",
                                 "paged:bf16:bf16 "}) {
    const auto parsed = parse_signature(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().what, "unknown KV signature: " + text);
  }
}

}  // namespace
}  // namespace kvasir::kv
