// MLX-quantized hub folders seen through ModelFiles (MOD-51). Planes come from tests/data/codecs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "formats/detail/test_files.h"
#include "formats/model_files.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A [3, 128] matrix, 4 bits in groups of 64, f16 planes.
struct Planes {
  std::string codes, scales, biases;
  std::vector<float> expected;
};

Planes load_planes() {
  std::ifstream in(KVASIR_TEST_DATA "/codecs/affine4g64.bin", std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  Planes out{raw.substr(20, 192), raw.substr(212, 12), raw.substr(224, 12),
             std::vector<float>(3 * 128)};
  std::memcpy(out.expected.data(), raw.data() + 236, out.expected.size() * 4);
  return out;
}

// Writes tensors one after another.
class Writer {
 public:
  Writer& add(const std::string& name,
              const std::string& dtype,
              const std::string& shape,
              const std::string& bytes) {
    header_ += (header_.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + dtype +
               R"(","shape":)" + shape + R"(,"data_offsets":[)";
    header_ +=
        std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
    return *this;
  }
  Writer& add_module(const std::string& path, const Planes& planes, const std::string& lead = "") {
    add(path + ".weight", "U32", "[" + lead + "3,16]", planes.codes);
    add(path + ".scales", "F16", "[" + lead + "3,2]", planes.scales);
    return add(path + ".biases", "F16", "[" + lead + "3,2]", planes.biases);
  }
  std::string bytes() const { return safetensors_bytes(header_ + "}", data_); }

 private:
  std::string header_, data_;
};

Result<ModelFiles> open_written(const TestFolder& folder,
                                const Writer& weights,
                                const std::string& quantization) {
  folder.write("config.json", R"({"model_type":"llama","quantization":)" + quantization + "}");
  folder.write("model.safetensors", weights.bytes());
  return ModelFiles::open(folder.path());
}

constexpr const char* kDefault = R"({"group_size":64,"bits":4})";

TEST(MlxFolder, FoldsThePlanesOfAModuleIntoItsWeight_MOD51) {
  const TestFolder folder;
  const Planes planes = load_planes();
  Writer weights;
  weights.add_module("model.embed_tokens", planes)
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
  const Planes planes = load_planes();
  Planes two = planes;
  two.codes += planes.codes, two.scales += planes.scales, two.biases += planes.biases;
  Writer weights;
  weights.add_module("model.layers.0.mlp.switch_mlp.up_proj", two, "2,");

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
  const Planes planes = load_planes();
  Writer weights;
  weights.add_module("language_model.model.a", planes).add_module("language_model.model.b", planes);
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
  const Planes planes = load_planes();
  const auto error_of = [&](const Writer& weights, const std::string& quantization) {
    const TestFolder folder;
    const auto files = open_written(folder, weights, quantization);
    if (!files) return files.error().what;
    const auto matrix = files->matrix("m.weight", 3, 128);
    return matrix ? std::string("accepted") : matrix.error().what;
  };
  Writer good, no_biases, dense, floats;
  good.add_module("m", planes);
  no_biases.add("m.weight", "U32", "[3,16]", planes.codes)
      .add("m.scales", "F16", "[3,2]", planes.scales);
  dense.add("m.weight", "F32", "[1,1]", "1234");
  floats.add("m.weight", "F32", "[3,16]", planes.codes)
      .add("m.scales", "F16", "[3,2]", planes.scales);
  floats.add("m.biases", "F16", "[3,2]", planes.biases);

  EXPECT_EQ(error_of(good, kDefault), "accepted");
  EXPECT_THAT(error_of(good, R"({"group_size":32,"bits":4})"),
              HasSubstr("128 codes a row and 2 scales"));
  EXPECT_THAT(error_of(good, R"({"group_size":64,"bits":3})"),
              HasSubstr("'m.weight' has type affine3g64, not supported yet; supported: "));
  EXPECT_THAT(error_of(good, R"({"group_size":32,"bits":4,"mode":"mxfp4"})"),
              HasSubstr("has type mxfp4"));
  EXPECT_THAT(error_of(good, R"({"group_size":0,"bits":4})"), HasSubstr("group_size 0"));
  EXPECT_THAT(error_of(good, R"({"quant_method":"gptq","bits":4})"),
              HasSubstr("'gptq' is not supported"));
  EXPECT_THAT(error_of(no_biases, kDefault), HasSubstr("no biases"));
  EXPECT_THAT(error_of(floats, kDefault), HasSubstr("codes have dtype F32"));
  EXPECT_THAT(error_of(dense, R"({"group_size":64,"bits":4,"m":{"bits":4}})"),
              HasSubstr("no scales"));
}

}  // namespace
}  // namespace kvasir::formats
