#include "formats/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/detail/gguf_builder.h"
#include "formats/detail/test_files.h"

namespace kvasir::formats {
namespace {

using ::testing::HasSubstr;

ModelDescription describe_built(const TestFolder& folder) {
  GgufBuilder file;
  file.text("general.architecture", "qwen3")
      .number<std::uint32_t>("qwen3.block_count", GgufKind::u32, 1);
  file.number<std::uint32_t>("qwen3.attention.head_count", GgufKind::u32, 2)
      .number<std::uint32_t>("qwen3.embedding_length", GgufKind::u32, 64);
  file.tensor("token_embd.weight", 8, {64, 100}, std::string(100 * 68, 'x'));
  file.tensor("output_norm.weight", 0, {64}, std::string(256, 'x'));
  const auto files = ModelFiles::open(folder.write("m.gguf", file.bytes()));
  EXPECT_TRUE(files) << files.error().what;
  return describe(*files);
}

TEST(Inspect, CountsParametersAndBytesByType) {
  const TestFolder folder;

  const ModelDescription description = describe_built(folder);

  EXPECT_EQ(description.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(description.n_parameters, 6464u);
  EXPECT_EQ(description.size_bytes, 7056u);
  EXPECT_EQ(description.quantization, "q8_0");
  EXPECT_EQ(description.head_dim, 32u);
  EXPECT_EQ(description.vocab_size, 100u);
  ASSERT_EQ(description.types.size(), 2u);
  EXPECT_EQ(description.types[1].type, "f32");
  EXPECT_EQ(description.types[1].n_parameters, 64u);
}

TEST(Inspect, WritesTextAndJson) {
  const TestFolder folder;
  const ModelDescription description = describe_built(folder);

  const std::string text = description_text(description, /*with_tensors=*/true);
  const std::string json = json::write(description_json(description, /*with_tensors=*/true));

  EXPECT_THAT(text, HasSubstr("architecture    Qwen3ForCausalLM (qwen3)\n"));
  EXPECT_THAT(text, HasSubstr("parameters      6.46 K in 2 tensors, 6.89 KiB\n"));
  EXPECT_THAT(text,
              HasSubstr("model.norm.weight          f32         64                    256 B\n"));
  EXPECT_THAT(
      json,
      HasSubstr(
          R"({"name":"model.norm.weight","stored_name":"output_norm.weight","type":"f32","shape":[64],"size_bytes":256})"));
  EXPECT_THAT(description_text(description, /*with_tensors=*/false),
              Not(HasSubstr("model.norm.weight")));
}

TEST(Inspect, ShowsLatentAttentionAsItIs) {
  ModelDescription description;
  description.n_heads = 64;
  description.head_dim = 256;
  description.latent_rank = 512;
  description.latent_rope_dim = 64;
  description.index_top_k = 2048;

  const std::string text = description_text(description, /*with_tensors=*/false);

  EXPECT_THAT(text, HasSubstr("heads           64, of 256, on one latent row of 512 + 64\n"));
  EXPECT_THAT(text, HasSubstr("sparse index    each query attends 2048 positions\n"));
}

}  // namespace
}  // namespace kvasir::formats
