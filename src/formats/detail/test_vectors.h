// Vectors of tests/data/codecs (make.py there says how they lie) as planes, and hub folders made of
// such planes.
#pragma once

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "formats/detail/test_files.h"
#include "formats/model_files.h"

namespace kvasir::formats {

struct TestVectors {
  std::uint32_t n_out = 0, n_in = 0;
  std::string codes, scales, biases, tail;
  std::vector<float> expected;  // [n_out, n_in]

  explicit TestVectors(const std::string& name) {
    std::ifstream in(KVASIR_TEST_DATA "/codecs/" + name + ".bin", std::ios::binary);
    const std::string raw((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::array<std::uint32_t, 5> head{};
    std::memcpy(head.data(), raw.data(), sizeof head);
    n_out = head[0], n_in = head[1];
    codes = raw.substr(sizeof head, head[2]);
    scales = raw.substr(sizeof head + head[2], head[3]);
    biases = raw.substr(sizeof head + head[2] + head[3], head[3]);
    expected.resize(std::size_t{n_out} * n_in);
    const std::size_t at = sizeof head + head[2] + 2 * std::size_t{head[3]};
    std::memcpy(expected.data(), raw.data() + at, expected.size() * sizeof(float));
    tail = raw.substr(at + expected.size() * sizeof(float));
  }
  std::string n_out_text() const { return std::to_string(n_out); }
};

// A safetensors file, tensors one after another.
class TensorWriter {
 public:
  TensorWriter& add(const std::string& name,
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
  std::string bytes() const { return safetensors_bytes(header_ + "}", data_); }

 private:
  std::string header_, data_;
};

inline Result<ModelFiles> open_written(const TestFolder& folder,
                                       const TensorWriter& weights,
                                       const std::string& quantization) {
  folder.write("config.json", R"({"model_type":"llama","quantization":)" + quantization + "}");
  folder.write("model.safetensors", weights.bytes());
  return ModelFiles::open(folder.path());
}

// Every row as the vectors say, f32 planes aside (weight_type_test.cpp): to a millionth.
inline bool decodes_as(const codec::WeightMatrix& matrix, const TestVectors& vectors) {
  std::vector<float> row(matrix.n_in);
  bool is_equal = matrix.n_out == vectors.n_out && matrix.n_in == vectors.n_in;
  for (std::size_t r = 0; is_equal && r < matrix.n_out; ++r) {
    matrix.decode(r, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const float expected = vectors.expected[r * row.size() + i];
      is_equal = is_equal && std::abs(row[i] - expected) <= 1e-6f * std::abs(expected) + 1e-8f;
    }
  }
  return is_equal;
}

}  // namespace kvasir::formats
