#include "hub/detail/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Listing listing_of(const std::vector<std::string>& names) {
  Listing out;
  for (const std::string& name : names) out.files.push_back({name, "", 1'000'000});
  return out;
}

std::vector<std::string> chosen(const std::vector<std::string>& names,
                                const Patterns& patterns = {}) {
  const auto files = select_files(listing_of(names), patterns, "org/x");
  std::vector<std::string> out;
  if (!files) return {"error: " + files.error().what};
  for (const RemoteFile& file : *files) out.push_back(file.name);
  return out;
}

TEST(Selection, SafetensorsMakeOtherWeightsNeedless) {
  EXPECT_THAT(
      chosen({"README.md", "config.json", "model-00001-of-00002.safetensors",
              "model.safetensors.index.json", "pytorch_model.bin", "tf_model.h5", "onnx/model.onnx",
              "original/consolidated.00.pth", "x.Q4_0.gguf", "consolidated.safetensors",
              "tokenizer.model", "picture.png", "1_Pooling/config.json"}),
      ElementsAre("README.md", "config.json", "model-00001-of-00002.safetensors",
                  "model.safetensors.index.json", "tokenizer.model", "1_Pooling/config.json"));
}

TEST(Selection, SeveralGgufModelsHaveToBeChosenFrom) {
  const auto files = select_files(
      listing_of({"README.md", "a-Q4_0.gguf", "a-Q8_0.gguf", "mmproj-a.gguf"}), {}, "org/x");

  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().what, HasSubstr("--include 'a-Q4_0*'"));
  EXPECT_THAT(files.error().what, HasSubstr("\n  a-Q8_0  1 MB"));
}

TEST(Selection, PartsOfOneGgufAreOneModel) {
  EXPECT_THAT(chosen({"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "mmproj-a.gguf"}),
              ElementsAre("a-00001-of-00002.gguf", "a-00002-of-00002.gguf"));
  EXPECT_EQ(gguf_model_name("sub/a-00002-of-00002.gguf"), "sub/a");
  EXPECT_EQ(gguf_model_name("a-Q4_0.gguf"), "a-Q4_0");
}

TEST(Selection, IncludeIsTakenAsItIs) {
  EXPECT_THAT(chosen({"a-Q4_0.gguf", "sub/b-Q4_0.gguf", "pytorch_model.bin"}, {{"*Q4_0*"}, {}}),
              ElementsAre("a-Q4_0.gguf", "sub/b-Q4_0.gguf"));
  EXPECT_THAT(chosen({"a.bin", "b.txt"}, {{"*.bin"}, {}}), ElementsAre("a.bin"));
  EXPECT_THAT(chosen({"sub/a.txt", "b.txt"}, {{"sub/"}, {}}), ElementsAre("sub/a.txt"));
}

TEST(Selection, ExcludeNarrowsTheChoice) {
  EXPECT_THAT(chosen({"a-Q4_0.gguf", "a-Q8_0.gguf"}, {{}, {"*Q8*"}}), ElementsAre("a-Q4_0.gguf"));
}

TEST(Selection, NothingThatMatchesNamesWhatThereIs) {
  EXPECT_THAT(chosen({"a.txt"}, {{"*.gguf"}, {}}),
              ElementsAre("error: org/x: no file matches; it has:\n  a.txt"));
}

TEST(Selection, OnlyForeignWeightsAreRefused) {
  EXPECT_THAT(chosen({"config.json", "pytorch_model.bin"}),
              ElementsAre(HasSubstr("only weights kvasir cannot load (pytorch_model.bin)")));
  EXPECT_THAT(chosen({"tokenizer.json"}), ElementsAre("tokenizer.json"));
}

}  // namespace
}  // namespace kvasir::hub
