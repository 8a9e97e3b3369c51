#include "kv/kv_scheme.h"

#include <gtest/gtest.h>

namespace kvasir::kv {
namespace {

TEST(KvScheme, KeyOfTheExactKindIsItsType_KV2) {
  EXPECT_EQ(KvScheme{}.cache_key(), "bf16");
  EXPECT_EQ(KvScheme{DType::f32}.cache_key(), "f32");
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
