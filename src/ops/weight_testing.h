// For tests of backends: random stored weights of any codec, a host device's result of a product.
// Not used by the program itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "codec/list.h"
#include "codec/weight_matrix.h"
#include "ops/op_table.h"
#include "ops/testing.h"

namespace kvasir::ops::testing {

// Random bytes with small finite half floats wherever a type keeps some (halves are found by
// decoding: a block with a value that is not finite, is large or tiny is drawn again).
class StoredWeight {
 public:
  StoredWeight(std::string_view type_name,
               std::uint32_t n_out,
               std::uint32_t n_in,
               std::mt19937& rng) {
    m_.type = *codec::find_weight_type(type_name);
    m_.n_out = n_out;
    m_.n_in = n_in;
    const codec::WeightTypeInfo& info = codec::info(m_.type);
    m_.codes_stride = n_in / info.block * info.block_bytes;
    codes_.resize(m_.codes_stride * n_out);
    m_.planes.codes = codes_.data();
    if (info.scale_plane == codec::ScalePlane::columns) {
      draw_columns(info, rng);
      return;
    }
    if (info.scale_plane != codec::ScalePlane::none) make_planes(info, rng);
    const bool is_dense = !info.quantized && info.scale_plane == codec::ScalePlane::none;
    is_dense ? draw_dense(info, rng) : draw_blocks(info, rng);
  }
  StoredWeight(const StoredWeight&) = delete;  // the view points into it
  StoredWeight& operator=(const StoredWeight&) = delete;
  const codec::WeightMatrix& view() const noexcept { return m_; }

 private:
  static void fill_halves(std::vector<std::byte>& to, std::mt19937& rng) {
    const auto values = random_floats(to.size() / 2, rng, 0.05f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const BFloat16 h = to_bf16(values[i]);
      std::memcpy(to.data() + 2 * i, &h, 2);
    }
  }
  // Scales and biases of every row: bf16, or bytes near one half.
  void make_planes(const codec::WeightTypeInfo& info, std::mt19937& rng) {
    const std::size_t n = (m_.n_in + info.group - 1) / info.group;
    const bool is_byte = info.scale_plane != codec::ScalePlane::floats;
    m_.scales_stride = n * (is_byte ? 1 : 2);
    scales_.resize(m_.scales_stride * m_.n_out);
    biases_.resize(scales_.size());
    fill_halves(scales_, rng);
    fill_halves(biases_, rng);
    const int middle = info.scale_plane == codec::ScalePlane::e8m0 ? 122 : 44;
    std::uniform_int_distribution<int> near(middle - 4, middle + 4);
    for (std::byte& b : scales_) b = is_byte ? static_cast<std::byte>(near(rng)) : b;
    m_.planes.scales = scales_.data();
    m_.planes.biases = biases_.data();
    m_.planes.scale_type = codec::ScaleType::bf16;
  }
  // As GPTQ and AWQ files have them; outputs are whole words of eight, the view has n_out.
  void draw_columns(const codec::WeightTypeInfo& info, std::mt19937& rng) {
    columns_ = {(m_.n_out + 7) / 8 * 8, static_cast<std::uint32_t>(info.group), 1};
    const std::size_t n_groups = m_.n_in / info.group;
    codes_.resize(std::size_t{columns_.n_out} * m_.n_in / 2);
    scales_.resize(n_groups * columns_.n_out * 2);
    biases_.resize(n_groups * columns_.n_out / 2);
    std::uniform_int_distribution<int> byte(0, 255);
    for (std::byte& b : codes_) b = static_cast<std::byte>(byte(rng));
    for (std::byte& b : biases_) b = static_cast<std::byte>(byte(rng));
    fill_halves(scales_, rng);
    m_.codes_stride = 0;
    m_.planes = {codes_.data(), scales_.data(), biases_.data(), codec::ScaleType::bf16};
    m_.planes.columns = &columns_;
  }
  void draw_blocks(const codec::WeightTypeInfo& info, std::mt19937& rng) {
    std::uniform_int_distribution<int> byte(0, 255);
    std::vector<float> values(info.block);
    for (std::size_t at = 0; at < codes_.size(); at += info.block_bytes) {
      const codec::RowPlanes planes{codes_.data() + at, m_.planes.scales, m_.planes.biases,
                                    m_.planes.scale_type};
      bool good = false;
      while (!good) {
        for (std::size_t i = 0; i < info.block_bytes; ++i)
          codes_[at + i] = static_cast<std::byte>(byte(rng));
        codec::decode_row(m_.type, planes, info.block, values.data());
        good = std::all_of(values.begin(), values.end(), [](float v) {
          return v == 0.0f || (std::abs(v) < 1e4f && std::abs(v) > 1e-30f);  // devices flush less
        });
      }
    }
  }
  void draw_dense(const codec::WeightTypeInfo& info, std::mt19937& rng) {
    const auto values = random_floats(codes_.size() / info.block_bytes, rng, 0.5f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half =
          info.name == "f16" ? to_f16(values[i]).bits : to_bf16(values[i]).bits;
      info.block_bytes == 4 ? std::memcpy(codes_.data() + 4 * i, &values[i], 4)
                            : std::memcpy(codes_.data() + 2 * i, &half, 2);
    }
  }

  codec::ColumnLayout columns_;
  codec::WeightMatrix m_;
  std::vector<std::byte> codes_, scales_, biases_;
};

inline std::vector<float> product(Device& device,
                                  const PackedMatrix& w,
                                  const std::vector<float>& x,
                                  const float* bias = nullptr) {
  const auto n_rows = static_cast<std::uint32_t>(x.size() / w.n_in());
  std::vector<float> out(std::size_t{n_rows} * w.n_out(), -1.0f);
  device.ops().linear(device, {.x = {x.data(), n_rows, w.n_in(), w.n_in()},
                               .weight = &w,
                               .bias = bias,
                               .out = mat_view(out.data(), n_rows, w.n_out())});
  return out;
}

inline std::vector<std::string> all_types() {
  std::vector<std::string> names;
  codec::WeightCodecs::for_each([&]<class C>() { names.emplace_back(C::kName); });
  return names;
}

}  // namespace kvasir::ops::testing
