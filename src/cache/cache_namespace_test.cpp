#include "cache/cache_namespace.h"

#include <gtest/gtest.h>

namespace kvasir::cache {
namespace {

TEST(CacheNamespace, IsCanonicalJsonWithoutSpaces_KV42) {
  const NamespaceParts parts{.model_fp = "ab",
                             .numerics_id = "ref",
                             .cache_key = "bf16",
                             .layers = {},
                             .adapter_ns = "",
                             .media_ns = "m\"1",
                             .method_ns = "ar"};
  EXPECT_EQ(cache_namespace(parts), R"(["kvasir-kv-v1","ab","ref","bf16",null,"","m\"1","ar"])");
}

// Placeholders of other media are the same tokens.
TEST(CacheNamespace, PromptsOfOtherMediaAreOfAnotherNamespace_CACHE12) {
  const auto of_media = [](const char* media) {
    return cache_namespace({.model_fp = "ab",
                            .numerics_id = "cpu",
                            .cache_key = "bf16",
                            .layers = {},
                            .adapter_ns = {},
                            .media_ns = media,
                            .method_ns = {}});
  };
  EXPECT_EQ(of_media("h1"), of_media("h1"));
  EXPECT_NE(of_media("h1"), of_media("h2"));
  EXPECT_NE(of_media("h1"), of_media(""));
}

TEST(CacheNamespace, PerLayerSchemesEnterElementwise_KV42) {
  NamespaceParts parts;
  parts.cache_key = "config";
  parts.layers = {{0, 4, 64}, {3, 8, 32}};
  EXPECT_EQ(cache_namespace(parts),
            R"(["kvasir-kv-v1","","","config",[[0,4,64],[3,8,32]],"","",""])");
  parts.layers->clear();
  EXPECT_EQ(cache_namespace(parts), R"(["kvasir-kv-v1","","","config",[],"","",""])");
}

}  // namespace
}  // namespace kvasir::cache
