// Hub folders quantized by other methods than MLX's: fp8, gpt-oss's mxfp4, GPTQ, AWQ. Planes come
// from tests/data/codecs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/detail/test_vectors.h"
#include "formats/inspect.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kFp8 = R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})";

std::string error_of(const Result<ModelFiles>& files) {
  return files ? std::string("accepted") : files.error().what;
}

// Three copies of the vectors' rows, 128 rows apart, so that each has its own row of scales.
TEST(Fp8Folder, ScalesBlocksOf128By128_MOD50) {
  const TestFolder folder;
  const TestVectors v("f8_e4m3");
  std::string codes(std::size_t{300} * v.n_in, '\0');
  for (std::size_t r = 0; r < 3; ++r)
    codes.replace(r * 128 * v.n_in, v.n_in, v.codes.substr(r * v.n_in, v.n_in));
  TensorWriter weights;
  weights.add("model.m.weight", "F8_E4M3", "[300,200]", codes);
  weights.add("model.m.weight_scale_inv", "F32", "[3,2]", v.scales);
  weights.add("model.n.weight", "F8_E4M3", "[2]", "\x38\xc0");

  const auto files = open_written(folder, weights, kFp8);

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->tensors().size(), 2u);
  const auto matrix = files->matrix("model.m.weight", 300, 200);
  ASSERT_TRUE(matrix) << matrix.error().what;
  std::vector<float> row(200);
  const codec::WeightMatrix part = matrix->rows(64, 236);
  for (std::size_t r = 0; r < 3; ++r) {
    r == 0 ? matrix->decode(0, row.data()) : part.decode(r * 128 - 64, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), v.expected.begin() + std::ptrdiff_t(r) * 200));
  }
  files->release_pages(*matrix);
  EXPECT_THAT(*files->vector("model.n.weight", 2), ElementsAre(1.0f, -2.0f));
  EXPECT_EQ(describe(*files).quantization, "f8_e4m3");
}

TEST(Fp8Folder, RefusesOtherBlocksAndFormats_MOD50) {
  const TestFolder folder;
  TensorWriter weights;
  weights.add("m.weight", "F8_E4M3", "[2,2]", "1234");
  const auto with = [&](const std::string& settings) {
    return error_of(open_written(folder, weights, R"({"quant_method":"fp8")" + settings + "}"));
  };
  EXPECT_THAT(with(""), HasSubstr("weight_block_size missing; supported: [128,128]"));
  EXPECT_THAT(with(R"(,"weight_block_size":[64,128])"), HasSubstr("weight_block_size [64,128]"));
  EXPECT_THAT(with(R"(,"weight_block_size":[128,128],"fmt":"e5m2")"), HasSubstr("'e5m2'"));
  weights.add("m.weight_scale_inv", "F32", "[2,1]", "12345678");
  EXPECT_THAT(error_of(open_written(folder, weights, kFp8)),
              HasSubstr("'m.weight': its scales are not one for 128 x 128"));
}

// Experts as gpt-oss stores them: 3 rows each, two experts, rows alternate between gate and up.
TEST(GptOssFolder, GivesStacksOfExperts_MOD34) {
  const TestFolder folder;
  const TestVectors v("mxfp4g32");
  TensorWriter weights;
  weights.add("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "[2,3,4,16]",
              v.codes + v.codes);
  weights.add("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "[2,3,4]",
              v.scales + v.scales);
  weights.add("model.layers.0.mlp.experts.gate_up_proj_bias", "F32", "[1]", "1234");

  const auto files = open_written(folder, weights, R"({"quant_method":"mxfp4"})");

  ASSERT_TRUE(files) << files.error().what;
  ASSERT_EQ(files->tensors().size(), 2u);
  EXPECT_EQ(files->tensors()[0].name, "model.layers.0.mlp.experts.gate_up_proj_blocks");
  EXPECT_EQ(files->tensors()[0].type, "mxfp4g32");
  const auto experts = files->stack("model.layers.0.mlp.experts.gate_up_proj", 2, 3, v.n_in);
  ASSERT_TRUE(experts) << experts.error().what;
  EXPECT_TRUE(decodes_as(experts->at(0), v));
  EXPECT_TRUE(decodes_as(experts->at(1), v));
  const codec::WeightMatrix gate = experts->at(1).every(2, 0), up = experts->at(1).every(2, 1);
  std::vector<float> row(v.n_in);
  gate.decode(1, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), v.expected.begin() + 2 * v.n_in));
  up.decode(0, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), v.expected.begin() + v.n_in));
  files->release_pages(gate);
  files->release_pages(up);
  EXPECT_TRUE(decodes_as(experts->at(1), v));
}

TEST(GptOssFolder, RefusesBlocksAndScalesThatDisagree_MOD34) {
  const TestFolder folder;
  const TestVectors v("mxfp4g32");
  TensorWriter shapes, width;
  shapes.add("e_blocks", "U8", "[3,4,16]", v.codes).add("e_scales", "U8", "[4,3]", v.scales);
  width.add("e_blocks", "U8", "[3,8,8]", v.codes).add("e_scales", "U8", "[3,4]", v.scales);
  const char* const mxfp4 = R"({"quant_method":"mxfp4"})";
  EXPECT_THAT(error_of(open_written(folder, shapes, mxfp4)), HasSubstr("disagree in shape"));
  EXPECT_THAT(error_of(open_written(folder, width, mxfp4)),
              HasSubstr("'e_blocks': blocks are not [.., rows, blocks, 16]"));
}

// A module of 16 outputs and two groups; GPTQ's order is the given one.
TensorWriter columns_module(const TestVectors& v, bool is_awq, const std::vector<int>& order) {
  const std::string n_in = std::to_string(v.n_in), n_words = std::to_string(v.n_in / 8);
  TensorWriter out;
  out.add("m.qweight", "I32", is_awq ? "[" + n_in + ",2]" : "[" + n_words + ",16]", v.codes);
  out.add("m.qzeros", "I32", "[2,2]", v.biases.substr(0, 16));
  out.add("m.scales", "F16", "[2,16]", v.scales);
  if (!order.empty()) out.add("m.g_idx", "I32", "[" + n_in + "]", bytes_of_values(order));
  out.add("m.bias", "F16", "[1]", "12");
  return out;
}

std::vector<int> plain_order(const TestVectors& v) {
  std::vector<int> out(v.n_in);
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<int>(2 * k / v.n_in);
  return out;
}

TEST(ColumnsFolder, ReadsGptqAndAwqAsAffineGroups_MOD53) {
  for (const bool is_awq : {false, true}) {
    for (const std::string group : {"32", "64", "128"}) {
      const TestFolder folder;
      const std::string method = is_awq ? "awq" : "gptq", type = method + "4g" + group;
      const TestVectors v(type);
      const auto order = is_awq ? std::vector<int>() : plain_order(v);
      const std::string settings = R"({"quant_method":")" + method + R"(","bits":4,"group_size":)";

      const auto files =
          open_written(folder, columns_module(v, is_awq, order), settings + group + "}");

      ASSERT_TRUE(files) << files.error().what;
      EXPECT_EQ(files->tensors().size(), 2u);
      EXPECT_EQ(files->find("m.weight")->type, type);
      const auto matrix = files->matrix("m.weight", 16, v.n_in);
      ASSERT_TRUE(matrix) << matrix.error().what;
      EXPECT_TRUE(decodes_as(*matrix, v)) << type;
      std::vector<float> row(v.n_in);
      matrix->rows(5, 9).rows(4, 2).decode(1, row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), v.expected.begin() + 10 * v.n_in)) << type;
      files->release_pages(matrix->rows(5, 9));
      files->release_pages(*matrix);
      EXPECT_TRUE(decodes_as(*matrix, v)) << type;
    }
  }
}

TEST(ColumnsFolder, SpreadsLargerGroupsOverSmallerOnes_MOD53) {
  const TestFolder folder;
  const TestVectors v("gptq4g32");  // its two groups as one of 64: scales and zeros of the first
  TensorWriter weights;
  weights.add("m.qweight", "I32", "[8,16]", v.codes);
  weights.add("m.qzeros", "I32", "[1,2]", v.biases.substr(0, 8));
  weights.add("m.scales", "F16", "[1,16]", v.scales.substr(0, 32));

  const auto files =
      open_written(folder, weights, R"({"quant_method":"gptq","bits":4,"group_size":-1})");

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->find("m.weight")->type, "gptq4g64");
  std::vector<float> row(64);
  files->matrix("m.weight", 16, 64)->decode(3, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.begin() + 32, v.expected.begin() + 3 * 64));
}

TEST(ColumnsFolder, RefusesWhatHasNoAffineForm_MOD53) {
  const TestVectors v("gptq4g32");
  std::vector<int> order = plain_order(v);
  std::swap(order.front(), order.back());
  const auto with = [&](const TensorWriter& weights, const std::string& settings) {
    const TestFolder folder;
    const auto files = open_written(folder, weights, settings);
    if (!files) return files.error().what;
    const auto matrix = files->matrix("m.weight", 16, 64);
    return matrix ? std::string("accepted") : matrix.error().what;
  };
  const auto plain = [&](const std::string& settings) {
    return with(columns_module(v, false, {}), settings);
  };
  EXPECT_EQ(plain(R"({"quant_method":"gptq","bits":4,"group_size":32})"), "accepted");
  EXPECT_THAT(with(columns_module(v, false, order),
                   R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true})"),
              HasSubstr("'m.weight' is in GPTQ's activation order"));
  EXPECT_THAT(plain(R"({"quant_method":"gptq","bits":8,"group_size":32})"),
              HasSubstr("gptq weights of 8 bits"));
  EXPECT_THAT(plain(R"({"quant_method":"gptq","bits":4,"group_size":16})"),
              HasSubstr("in groups of 16"));
  EXPECT_THAT(plain(R"({"quant_method":"gptq","bits":4,"group_size":64})"),
              HasSubstr("disagree in shape for groups of 64"));
  EXPECT_THAT(
      plain(R"({"quant_method":"gptq","bits":4,"group_size":32,"checkpoint_format":"marlin"})"),
      HasSubstr("'marlin'"));
  EXPECT_THAT(plain(R"({"quant_method":"awq","bits":4,"group_size":32,"version":"GEMV"})"),
              HasSubstr("version 'gemv'"));
}

}  // namespace
}  // namespace kvasir::formats
