#include "formats/tensor_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "formats/detail/test_files.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"

namespace kvasir::formats {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<NewTensor> two_tensors() {
  return {{.name = "a", .dtype = "U8", .ggml_type = 24, .shape = {2, 3}, .size_bytes = 6},
          {.name = "b", .dtype = "F32", .ggml_type = 0, .shape = {1}, .size_bytes = 4}};
}

TEST(TensorFile, SafetensorsReadBackWhateverTheOrderOfWriting) {
  const TestFolder folder;
  const auto path = folder.path() / "model.safetensors";
  auto file = TensorFile::create_safetensors(path, two_tensors());
  ASSERT_TRUE(file) << file.error().what;

  ASSERT_TRUE(file->write(1, 0, bytes_of("wxyz")));
  ASSERT_TRUE(file->write(0, 3, bytes_of("456")));
  ASSERT_TRUE(file->write(0, 0, bytes_of("123")));
  ASSERT_TRUE(file->close());

  const auto read = SafetensorsFile::open(path);
  ASSERT_TRUE(read) << read.error().what;
  ASSERT_EQ(read->tensors().size(), 2u);
  EXPECT_EQ(read->find("a")->shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(read->find("a")->bytes.data(), "123456", 6), 0);
  EXPECT_EQ(std::memcmp(read->find("b")->bytes.data(), "wxyz", 4), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read->find("a")->bytes.data()) % 32, 0u);
}

TEST(TensorFile, GgufReadsBackWithItsMetadata) {
  const TestFolder folder;
  const auto path = folder.path() / "model.gguf";
  GgufMetadata metadata;
  const std::vector<std::string> tokens{"x", "yz"};
  const std::vector<std::int32_t> types{1, 3};
  metadata.text("general.architecture", "llama")
      .flag("kvasir.random_weights", true)
      .whole("llama.block_count", 7)
      .real("llama.rope.freq_base", 0.5f)
      .texts("tokens", tokens)
      .wholes("types", types);
  auto file = TensorFile::create_gguf(path, metadata, two_tensors());
  ASSERT_TRUE(file) << file.error().what;
  ASSERT_TRUE(file->write(0, 0, bytes_of("123456")));
  ASSERT_TRUE(file->write(1, 0, bytes_of("wxyz")));
  ASSERT_TRUE(file->close());

  const auto text = read_file(path, 1 << 20);
  ASSERT_TRUE(text);
  const auto read = parse_gguf(bytes_of(*text));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->text_or("general.architecture", ""), "llama");
  EXPECT_EQ(read->whole_or("kvasir.random_weights", 0), 1u);
  EXPECT_EQ(read->whole_or("llama.block_count", 0), 7u);
  EXPECT_EQ(read->number_or("llama.rope.freq_base", 0), 0.5);
  EXPECT_EQ(read->find("tokens")->strings(), (std::vector<std::string_view>{"x", "yz"}));
  EXPECT_EQ(read->find("types")->numbers(), (std::vector<double>{1, 3}));
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(read->tensors[1].bytes.data(), "wxyz", 4), 0);
}

TEST(TensorFile, AFolderThatIsNotThereIsAnError) {
  const auto file = TensorFile::create_safetensors("/nowhere/model.safetensors", two_tensors());

  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().what.find("/nowhere/model.safetensors: "), 0u);
}

TEST(TensorFile, NamesOfGgufAreThoseThatReadingTranslates) {
  EXPECT_EQ(gguf_tensor_name("qwen3", "model.layers.3.self_attn.q_norm.weight"),
            "blk.3.attn_q_norm.weight");
  EXPECT_EQ(gguf_tensor_name("llama", "model.layers.12.post_attention_layernorm.weight"),
            "blk.12.ffn_norm.weight");
  EXPECT_EQ(gguf_tensor_name("llama", "model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf_tensor_name("llama", "lm_head.weight"), "output.weight");
  EXPECT_EQ(gguf_tensor_name("llama", "model.layers.x.mlp.up_proj.weight"), std::nullopt);
  EXPECT_EQ(gguf_tensor_name("llama", "model.layers.1.conv.weight"), std::nullopt);
}

TEST(ModelFiles, ABlankModelListsWhatItIsAskedForOnceEach) {
  const ModelFiles blank =
      ModelFiles::blank("config.json", json::Object{{"hidden_size", 8}}, {"there.weight"});

  ASSERT_TRUE(blank.matrix("a.weight", 4, 8));
  ASSERT_TRUE(blank.matrix("a.weight", 4, 8));
  const auto norm = blank.vector("n.weight", 3);
  const auto taps = blank.vector("c.weight", {{4, 2, 1}, {4, 1, 2}});
  const auto experts = blank.stack("mlp.experts.*.up_proj.weight", 2, 4, 8);
  ASSERT_TRUE(blank.stack("mlp.experts.up", 2, 4, 8));

  ASSERT_TRUE(norm && taps && experts);
  EXPECT_EQ(*norm, std::vector<float>(3, 1.0f));
  EXPECT_EQ(taps->size(), 8u);
  EXPECT_EQ(experts->size(), 2u);
  EXPECT_TRUE(blank.has("there.weight"));
  EXPECT_FALSE(blank.has("a.weight"));
  std::string names;
  for (const WantedTensor& tensor : blank.wanted())
    names += tensor.name + (tensor.is_matrix ? "* " : " ");
  EXPECT_EQ(names,
            "a.weight* n.weight c.weight mlp.experts.0.up_proj.weight* "
            "mlp.experts.1.up_proj.weight* mlp.experts.up* ");
  EXPECT_EQ(blank.wanted().back().shape, (std::vector<std::uint64_t>{2, 4, 8}));
}

}  // namespace
}  // namespace kvasir::formats
