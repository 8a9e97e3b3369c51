// MLX-quantized hub folders seen through ModelFiles (MOD-51). Planes come from tests/data/codecs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/detail/test_vectors.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// affine4g64: a [3, 128] matrix, f16 planes.
TensorWriter& add_module(TensorWriter& to,
                         const std::string& path,
                         const TestVectors& planes,
                         const std::string& lead = "") {
  to.add(path + ".weight", "U32", "[" + lead + "3,16]", planes.codes);
  to.add(path + ".scales", "F16", "[" + lead + "3,2]", planes.scales);
  return to.add(path + ".biases", "F16", "[" + lead + "3,2]", planes.biases);
}

constexpr const char* kDefault = R"({"group_size":64,"bits":4})";

TEST(MlxFolder, FoldsThePlanesOfAModuleIntoItsWeight_MOD51) {
  const TestFolder folder;
  const TestVectors planes = TestVectors("affine4g64");
  TensorWriter weights;
  add_module(weights, "model.embed_tokens", planes)
      .add("model.embed_tokens.bias", "F32", "[1]", "1234");
  weights.add("model.norm.weight", "F32", "[2]", bytes_of_values<float>({1, 2}));

  const auto files = open_written(folder, weights, kDefault);

  ASSERT_TRUE(files) << files.error().what;
  ASSERT_EQ(files->tensors().size(), 3u);
  const TensorInfo& info = *files->find("model.embed_tokens.weight");
  EXPECT_EQ(info.type, "affine4g64");
  EXPECT_THAT(info.shape, ElementsAre(3u, 128u));
  EXPECT_EQ(info.size_bytes, 192u + 12 + 12);
  const auto matrix = files->matrix("model.embed_tokens.weight", 3, 128);
  ASSERT_TRUE(matrix) << matrix.error().what;
  std::vector<float> row(128);
  matrix->decode(2, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), planes.expected.begin() + 2 * 128));
  EXPECT_THAT(*files->vector("model.norm.weight", 2), ElementsAre(1.0f, 2.0f));
}

TEST(MlxFolder, GivesStackedExpertsOneByOne_MOD51) {
  const TestFolder folder;
  const TestVectors planes = TestVectors("affine4g64");
  TestVectors two = planes;
  two.codes += planes.codes, two.scales += planes.scales, two.biases += planes.biases;
  TensorWriter weights;
  add_module(weights, "model.layers.0.mlp.switch_mlp.up_proj", two, "2,");

  const auto files = open_written(folder, weights, kDefault);

  ASSERT_TRUE(files) << files.error().what;
  const auto experts = files->stack("model.layers.0.mlp.experts.*.up_proj.weight", 2, 3, 128);
  ASSERT_TRUE(experts) << experts.error().what;
  std::vector<float> row(128);
  experts->at(1).decode(0, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), planes.expected.begin()));
  files->release_pages(experts->at(1));
}

TEST(MlxFolder, OverridesGoByTheFullPathWithOrWithoutPrefix_MOD51) {
  const TestFolder folder;
  const TestVectors planes = TestVectors("affine4g64");
  TensorWriter weights;
  add_module(weights, "language_model.model.a", planes);
  add_module(weights, "language_model.model.b", planes);
  weights.add("language_model.model.c.weight", "F32", "[1,2]", bytes_of_values<float>({1, 2}));

  const auto files =
      open_written(folder, weights,
                   R"({"group_size":32,"bits":8,"language_model.model.a":{"group_size":64,"bits":4},
                                      "model.b":{"bits":4,"group_size":64},"model.c":false})");

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->find("model.a.weight")->type, "affine4g64");
  EXPECT_EQ(files->find("model.b.weight")->type, "affine4g64");
  EXPECT_EQ(files->find("model.c.weight")->type, "f32");
}

TEST(MlxFolder, RefusesWhatDoesNotFit_MOD51) {
  const TestVectors planes = TestVectors("affine4g64");
  const auto error_of = [&](const TensorWriter& weights, const std::string& quantization) {
    const TestFolder folder;
    const auto files = open_written(folder, weights, quantization);
    if (!files) return files.error().what;
    const auto matrix = files->matrix("m.weight", 3, 128);
    return matrix ? std::string("accepted") : matrix.error().what;
  };
  TensorWriter good, no_biases, dense, floats;
  add_module(good, "m", planes);
  no_biases.add("m.weight", "U32", "[3,16]", planes.codes)
      .add("m.scales", "F16", "[3,2]", planes.scales);
  dense.add("m.weight", "F32", "[1,1]", "1234");
  floats.add("m.weight", "F32", "[3,16]", planes.codes)
      .add("m.scales", "F16", "[3,2]", planes.scales);
  floats.add("m.biases", "F16", "[3,2]", planes.biases);

  EXPECT_EQ(error_of(good, kDefault), "accepted");
  EXPECT_THAT(error_of(good, R"({"group_size":32,"bits":4})"),
              HasSubstr("128 codes a row and 2 scales"));
  EXPECT_THAT(error_of(good, R"({"group_size":64,"bits":7})"),
              HasSubstr("'m.weight' has type affine7g64, not supported yet; supported: "));
  EXPECT_THAT(error_of(good, R"({"group_size":64,"bits":3})"), HasSubstr("170 codes a row"));
  EXPECT_THAT(error_of(good, R"({"group_size":64,"bits":4,"mode":"fp3"})"),
              HasSubstr("has type fp3g64, not supported"));
  EXPECT_THAT(error_of(good, R"({"group_size":64,"bits":4,"mode":"mxfp4"})"),
              HasSubstr("has type mxfp4g64, not supported"));
  EXPECT_THAT(error_of(good, R"({"group_size":32,"bits":8,"mode":"mxfp4"})"),
              HasSubstr("mode mxfp4 with 8 bits"));
  EXPECT_THAT(error_of(good, R"({"group_size":0,"bits":4})"), HasSubstr("group_size 0"));
  EXPECT_THAT(error_of(good, R"({"quant_method":"vptq","bits":4})"),
              HasSubstr("'vptq' is not supported"));
  EXPECT_THAT(error_of(no_biases, kDefault), HasSubstr("no biases"));
  EXPECT_THAT(error_of(floats, kDefault), HasSubstr("codes have dtype F32"));
  EXPECT_THAT(error_of(dense, R"({"group_size":64,"bits":4,"m":{"bits":4}})"),
              HasSubstr("no scales"));
}

TEST(MlxFolder, ReadsEveryNumberOfBitsAndGroupSize_MOD51) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const TestFolder folder;
      const std::string size = std::to_string(group);
      const std::string type = "affine" + std::to_string(bits) + "g" + size;
      const TestVectors planes(type);
      const std::string dtype = group == 32 ? "F32" : group == 64 ? "F16" : "BF16";
      TensorWriter weights;
      weights.add("m.weight", "U32", "[3," + std::to_string(2 * group * bits / 32) + "]",
                  planes.codes);
      weights.add("m.scales", dtype, "[3,2]", planes.scales);
      weights.add("m.biases", dtype, "[3,2]", planes.biases);

      const auto files = open_written(
          folder, weights, R"({"bits":)" + std::to_string(bits) + R"(,"group_size":)" + size + "}");

      ASSERT_TRUE(files) << files.error().what;
      EXPECT_EQ(files->find("m.weight")->type, type);
      EXPECT_TRUE(decodes_as(*files->matrix("m.weight", 3, planes.n_in), planes)) << type;
    }
  }
}

// A module of one of the modes of small floats, four groups a row.
void add_floats(TensorWriter& to, const std::string& path, const TestVectors& v, int words) {
  to.add(path + ".weight", "U32", "[3," + std::to_string(words) + "]", v.codes);
  to.add(path + ".scales", "U8", "[3,4]", v.scales);
}

TEST(MlxFolder, ReadsTheModesOfSmallFloats_MOD51) {
  const TestFolder folder;
  const TestVectors mxfp4("mxfp4g32"), mxfp8("mxfp8g32"), nvfp4("nvfp4g16"),
      global("nvfp4g16_global"), affine("affine4g64");
  TensorWriter weights;
  add_floats(weights, "a", mxfp4, 16);
  add_floats(weights, "b", mxfp8, 32);
  add_floats(weights, "c", nvfp4, 8);
  add_floats(weights, "d", global, 8);
  weights.add("d.global_scale", "F32", "[]", global.tail);
  add_module(weights, "e", affine);

  const auto files = open_written(folder, weights,
                                  R"({"group_size":32,"bits":4,"mode":"mxfp4","b":{"mode":"mxfp8"},
                                      "c":{"mode":"nvfp4","group_size":16,"bits":4},
                                      "d":{"mode":"nvfp4"},"e":{"group_size":64,"bits":4}})");

  ASSERT_TRUE(files) << files.error().what;
  EXPECT_EQ(files->tensors().size(), 5u);
  EXPECT_TRUE(decodes_as(*files->matrix("a.weight", 3, 128), mxfp4));
  EXPECT_TRUE(decodes_as(*files->matrix("b.weight", 3, 128), mxfp8));
  EXPECT_TRUE(decodes_as(*files->matrix("c.weight", 3, 64), nvfp4));
  EXPECT_TRUE(decodes_as(*files->matrix("d.weight", 3, 64), global));
  EXPECT_TRUE(decodes_as(*files->matrix("e.weight", 3, 128), affine));
}

TEST(MlxFolder, RefusesSmallFloatsThatDoNotFit_MOD51) {
  const TestVectors v("mxfp4g32"), affine("affine4g64");
  const auto error_of = [](const TensorWriter& weights) {
    const TestFolder folder;
    const auto files =
        open_written(folder, weights, R"({"group_size":32,"bits":4,"mode":"mxfp4"})");
    return files ? std::string("accepted") : files.error().what;
  };
  TensorWriter good, with_biases, with_global, wide, floats;
  add_floats(good, "m", v, 16);
  add_floats(with_biases, "m", v, 16);
  with_biases.add("m.biases", "U8", "[3,4]", v.scales);
  add_floats(with_global, "m", v, 16);
  with_global.add("m.global_scale", "F32", "[]", "1234");
  wide.add("m.weight", "U32", "[3,16]", v.codes).add("m.scales", "U8", "[3,2]", "123456");
  floats.add("m.weight", "U32", "[3,16]", v.codes);
  floats.add("m.scales", "F16", "[3,4]", std::string(24, 'x'));

  EXPECT_EQ(error_of(good), "accepted");
  EXPECT_THAT(error_of(with_biases), HasSubstr("there are biases"));
  EXPECT_THAT(error_of(with_global), HasSubstr("not one F32 of an nvfp4 module"));
  EXPECT_THAT(error_of(wide), HasSubstr("128 codes a row and 2 scales"));
  EXPECT_THAT(error_of(floats), HasSubstr("scales have dtype F16, not U8"));
}

}  // namespace
}  // namespace kvasir::formats
