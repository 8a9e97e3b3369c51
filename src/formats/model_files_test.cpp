#include "formats/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "formats/detail/hub_names.h"
#include "formats/detail/test_files.h"
#include "formats/safetensors.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> row_of(const codec::WeightMatrix& matrix, std::size_t row) {
  std::vector<float> out(matrix.n_in);
  matrix.decode(row, out.data());
  return out;
}

// A model of one matrix [2, 3] and a norm [3], after `pad` bytes that shift all data.
std::string tiny_weights(std::size_t header_residue, bool has_leading_bytes) {
  std::string data = has_leading_bytes ? "xyz" : "";
  const std::size_t at = data.size();
  data += bytes_of_values<float>({1, 2, 3, 4, 5, 6}) + bytes_of_values<float>({0.5f, 1.5f, -2.5f});
  const auto range = [&](std::size_t begin, std::size_t end) {
    return "[" + std::to_string(at + begin) + "," + std::to_string(at + end) + "]";
  };
  std::string header = "{";
  if (has_leading_bytes) header += R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)";
  header += R"("w.weight":{"dtype":"F32","shape":[2,3],"data_offsets":)" + range(0, 24) + "},";
  header += R"("norm.weight":{"dtype":"F32","shape":[3],"data_offsets":)" + range(24, 36) + "}}";
  while (header.size() % 8 != header_residue) header += ' ';
  return safetensors_bytes(header, data);
}

TEST(ModelFiles, ReadsUnalignedTensorsBitForBit_C45) {
  for (const std::size_t residue : {0, 1, 2, 3, 5, 7}) {
    for (const bool has_leading_bytes : {false, true}) {
      const TestFolder folder;
      folder.write("config.json", R"({"model_type":"llama"})");
      folder.write("model.safetensors", tiny_weights(residue, has_leading_bytes));

      const auto files = ModelFiles::open(folder.path());

      ASSERT_TRUE(files) << files.error().what;
      const auto matrix = files->matrix("w.weight", 2, 3);
      ASSERT_TRUE(matrix) << matrix.error().what;
      EXPECT_THAT(row_of(*matrix, 1), ElementsAre(4.0f, 5.0f, 6.0f));
      EXPECT_THAT(*files->vector("norm.weight", 3), ElementsAre(0.5f, 1.5f, -2.5f));
    }
  }
}

TEST(ModelFiles, NamesTensorsThatAreMissingMisshapenOrUnread) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", tiny_weights(0, true));
  const auto files = ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;

  EXPECT_THAT(files->matrix("v.weight", 2, 3).error().what,
              HasSubstr("tensor 'v.weight' is missing"));
  EXPECT_THAT(files->matrix("w.weight", 3, 2).error().what,
              HasSubstr("has shape [2, 3], expected [3, 2]"));
  EXPECT_THAT(files->vector("w.weight", 5).error().what, HasSubstr("expected 5 elements"));
  EXPECT_THAT(files->vector("a", 3).error().what,
              HasSubstr("tensor 'a' has type u8, not supported yet"));
  EXPECT_THAT(files->unused(), ElementsAre("norm.weight"));
}

TEST(ModelFiles, ReadsShardsThroughLinksAsTheIndexSays) {
  const TestFolder folder, blobs;
  const std::string header = R"({"NAME":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto shard = [&](std::string name, float value) {
    std::string text = header;
    return safetensors_bytes(text.replace(text.find("NAME"), 4, name),
                             bytes_of_values<float>({value}));
  };
  const auto link = [&](const std::string& name, const std::string& bytes) {
    std::filesystem::create_symlink(blobs.write(name, bytes), folder.path() / name);
  };
  link("config.json", "{}");
  link("m-1.safetensors", shard("a", 1));
  link("m-2.safetensors", shard("b", 2));
  link("model.safetensors.index.json",
       R"({"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors"}})");

  const auto files = ModelFiles::open(folder.path());

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_THAT(*files->vector("a", 1), ElementsAre(1.0f));
  EXPECT_THAT(*files->vector("b", 1), ElementsAre(2.0f));
}

TEST(ModelFiles, RefusesIndexesThatLeaveTheFolderOrNameAbsentTensors) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("m.safetensors", tiny_weights(0, false));
  const auto error_of = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    const auto files = ModelFiles::open(folder.path());
    return files ? "accepted" : files.error().what;
  };
  EXPECT_THAT(error_of(R"({"weight_map":{"a":"../m.safetensors"}})"), HasSubstr("not a file name"));
  EXPECT_THAT(error_of(R"({"weight_map":{"a":"m.safetensors"}})"), HasSubstr("no tensor 'a'"));
  EXPECT_THAT(error_of(R"({"weight_map":{"a":"n.safetensors"}})"), HasSubstr("n.safetensors"));
  EXPECT_THAT(error_of(R"({"weight_map":{"w.weight":"m.safetensors","w.weight":"m.safetensors"}})"),
              HasSubstr("duplicated"));
  EXPECT_THAT(error_of("{}"), HasSubstr("no weight_map"));
}

TEST(ModelFiles, FindsExpertsStoredApartOrStackedByOnePattern) {
  const TestFolder apart, stacked;
  apart.write("config.json", "{}");
  apart.write("model.safetensors",
              safetensors_bytes(
                  R"({"m.experts.0.w1.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                  R"("m.experts.1.w1.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})",
                  bytes_of_values<float>({1, 2, 3, 4})));
  stacked.write("config.json", "{}");
  stacked.write(
      "model.safetensors",
      safetensors_bytes(
          R"({"m.switch_mlp.gate_proj.weight":{"dtype":"F32","shape":[2,1,2],"data_offsets":[0,16]}})",
          bytes_of_values<float>({1, 2, 3, 4})));

  for (const TestFolder* folder : {&apart, &stacked}) {
    const auto files = ModelFiles::open(folder->path());
    ASSERT_TRUE(files) << files.error().what;
    const auto experts = files->stack("m.experts.*.w1.weight", 2, 1, 2);
    ASSERT_TRUE(experts) << experts.error().what;
    EXPECT_THAT(row_of(experts->at(1), 0), ElementsAre(3.0f, 4.0f));
    EXPECT_TRUE(files->unused().empty());
  }
}

TEST(ModelFiles, ReadsReleasedPagesAgain_MOD54) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  std::vector<float> values(64 * 1024);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  folder.write(
      "model.safetensors",
      safetensors_bytes(R"({"w":{"dtype":"F32","shape":[64,1024],"data_offsets":[0,262144]}})",
                        bytes_of_values(values)));
  const auto files = ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;
  const auto matrix = files->matrix("w", 64, 1024);
  const std::vector<float> before = row_of(*matrix, 40);

  files->release_pages(*matrix);

  EXPECT_EQ(row_of(*matrix, 40), before);
  EXPECT_EQ(before[1], 40 * 1024 + 1);
}

TEST(ModelFiles, LiftsTheTextModelOutOfAWrapper_MOD4) {
  const auto config = json::parse(
      R"({"model_type":"gemma3","vision_config":{"hidden_size":1},"tie_word_embeddings":true,
      "quantization":{"bits":4},"text_config":{"model_type":"gemma3_text","hidden_size":64}})");

  const json::Value text = text_model_config(*config);

  EXPECT_EQ(text.string_or("model_type", ""), "gemma3_text");
  EXPECT_EQ(text.int_or("hidden_size", 0), 64);
  EXPECT_TRUE(text.bool_or("tie_word_embeddings", false));
  EXPECT_NE(text.find("quantization"), nullptr);
  EXPECT_EQ(text.find("vision_config"), nullptr);
}

// What ends a text is named in either place; a null within says nothing of how files are stored.
TEST(ModelFiles, AWrappersOwnMembersCountBesideItsTextModels_MOD4_TXT12) {
  const auto lifted = [](const std::string& outer, const std::string& inner) {
    return text_model_config(*json::parse("{" + outer + R"(,"text_config":{)" + inner + "}}"));
  };
  const auto ends = [&](const std::string& outer, const std::string& inner) {
    return json::write(
        *lifted(R"("eos_token_id":)" + outer, R"("eos_token_id":)" + inner).find("eos_token_id"));
  };
  EXPECT_EQ(ends("[2,136]", "2"), "[2,136]");
  EXPECT_EQ(ends("136", "null"), "[136]");
  EXPECT_EQ(ends("null", "[7]"), "[7]");
  const json::Value text =
      lifted(R"("quantization_config":{"bits":4})", R"("quantization_config":null)");
  EXPECT_EQ(text.find("quantization_config")->int_or("bits", 0), 4);
  EXPECT_TRUE(lifted(R"("sliding_window":5)", R"("sliding_window":null)")
                  .find("sliding_window")
                  ->is_null());
}

TEST(ModelFiles, NamesLoseTheWrappersPrefix_MOD4) {
  EXPECT_EQ(canonical_name("language_model.model.layers.0.mlp.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(canonical_name("model.language_model.layers.0.mlp.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(canonical_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_name("model.norm.weight"), "model.norm.weight");
}

TEST(ModelFiles, LeavesOtherTowersUnreadSilently_MOD5) {
  EXPECT_TRUE(may_stay_unread("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_TRUE(may_stay_unread("mtp.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(may_stay_unread("model.visual.blocks.0.attn.qkv.weight"));
  EXPECT_TRUE(may_stay_unread("vision_tower.encoder.weight"));
  EXPECT_FALSE(may_stay_unread("model.layers.0.mlp.up_proj.weight"));
}

TEST(ModelFiles, OpensEveryGoldenCheckpoint) {
  std::error_code ec;
  std::size_t n_opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVASIR_GOLDEN_MODELS, ec)) {
    if (!entry.is_directory()) continue;
    const auto files = ModelFiles::open(entry.path());
    ASSERT_TRUE(files) << files.error().what;
    EXPECT_FALSE(files->tensors().empty());
    EXPECT_FALSE(files->config().string_or("model_type", "").empty());
    const auto golden = SafetensorsFile::open(entry.path() / "golden.safetensors");
    ASSERT_TRUE(golden) << golden.error().what;
    EXPECT_TRUE(std::any_of(golden->tensors().begin(), golden->tensors().end(),
                            [](const SafeTensor& t) { return t.dtype == "I32"; }));
    ++n_opened;
  }
  if (n_opened == 0) GTEST_SKIP() << "no checkpoints in " << KVASIR_GOLDEN_MODELS;
}

}  // namespace
}  // namespace kvasir::formats
