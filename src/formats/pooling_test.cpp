#include "formats/pooling.h"

#include <gtest/gtest.h>

#include "formats/detail/gguf_builder.h"
#include "formats/detail/test_files.h"

namespace kvasir::formats {
namespace {

// "last", "cls", "mean", "none", or what was wrong.
std::string pooling_of(const char* config) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", safetensors_bytes("{}", ""));
  if (config) {
    std::filesystem::create_directory(folder.path() / "1_Pooling");
    folder.write("1_Pooling/config.json", config);
  }
  const auto files = ModelFiles::open(folder.path());
  EXPECT_TRUE(files) << files.error().what;
  const auto pooling = find_pooling(*files);
  if (!pooling) return pooling.error().what;
  if (!*pooling) return "none";
  return **pooling == Pooling::last ? "last" : **pooling == Pooling::cls ? "cls" : "mean";
}

TEST(Pooling, IsReadFromItsConfig_MOD61) {
  EXPECT_EQ(pooling_of(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"),
            "cls");
  EXPECT_EQ(pooling_of(R"({"word_embedding_dimension": 384, "pooling_mode_mean_tokens": true})"),
            "mean");
  EXPECT_EQ(pooling_of(R"({"pooling_mode_lasttoken": true, "include_prompt": true})"), "last");
  EXPECT_EQ(pooling_of(R"({"pooling_mode": "lasttoken"})"), "last");
  EXPECT_EQ(pooling_of(R"({"pooling_mode": "cls", "pooling_mode_cls_token": true})"), "cls");
}

TEST(Pooling, OfAGgufFileIsANumber_MOD61) {
  const auto pooling_of_number = [](std::uint32_t number) {
    const TestFolder folder;
    GgufBuilder file;
    file.text("general.architecture", "qwen3")
        .number<std::uint32_t>("qwen3.pooling_type", GgufKind::u32, number)
        .tensor("token_embd.weight", 0, {2, 1}, "12345678");
    const auto files = ModelFiles::open(folder.write("m.gguf", file.bytes()));
    EXPECT_TRUE(files) << files.error().what;
    return find_pooling(*files);
  };
  EXPECT_EQ(*pooling_of_number(0), std::nullopt);
  EXPECT_EQ(*pooling_of_number(1), Pooling::mean);
  EXPECT_EQ(*pooling_of_number(2), Pooling::cls);
  EXPECT_EQ(*pooling_of_number(3), Pooling::last);
  EXPECT_FALSE(pooling_of_number(4));
}

TEST(Pooling, IsNoneWhereNothingIsSaid) {
  EXPECT_EQ(pooling_of(nullptr), "none");
  EXPECT_EQ(pooling_of(R"({"pooling_mode_mean_tokens": false})"), "none");
}

TEST(Pooling, RefusesWhatItCannotDo) {
  EXPECT_NE(pooling_of(R"({"pooling_mode_max_tokens": true})").find("'max_tokens'"),
            std::string::npos);
  EXPECT_NE(pooling_of(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})")
                .find("several"),
            std::string::npos);
  EXPECT_NE(pooling_of("[1]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(pooling_of("{").find("1_Pooling"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::formats
