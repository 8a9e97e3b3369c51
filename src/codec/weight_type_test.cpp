#include "codec/weight_type.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codec/list.h"
#include "codec/weight_matrix.h"

namespace kvasir::codec {
namespace {

// tests/data/codecs/NAME.bin, written by make.py beside it.
struct Vectors {
  std::vector<std::byte> bytes;
  WeightMatrix matrix;
  std::vector<float> expected;  // [n_out, n_in]
};

Vectors load_vectors(std::string_view name) {
  const std::string path = std::string(KVASIR_TEST_DATA "/codecs/").append(name).append(".bin");
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> raw((std::istreambuf_iterator<char>(in)),
                              std::istreambuf_iterator<char>());
  std::array<std::uint32_t, 5> head = {};
  EXPECT_GT(raw.size(), sizeof head) << path;
  std::memcpy(head.data(), raw.data(), sizeof head);
  const auto [n_rows, n_in, codes_bytes, plane_bytes, scale_type] = head;

  Vectors out;
  out.bytes.resize(codes_bytes + 2 * plane_bytes + 1);  // shifted by one: planes may be unaligned
  std::memcpy(out.bytes.data() + 1, raw.data() + sizeof head, out.bytes.size() - 1);
  out.expected.resize(std::size_t{n_rows} * n_in);
  EXPECT_EQ(raw.size(), sizeof head + codes_bytes + 2 * plane_bytes + out.expected.size() * 4);
  std::memcpy(out.expected.data(), raw.data() + raw.size() - out.expected.size() * 4,
              out.expected.size() * 4);
  const std::byte* const codes = out.bytes.data() + 1;
  out.matrix = {*find_weight_type(name), n_rows, n_in, {codes, nullptr, nullptr, ScaleType{}},
                codes_bytes / n_rows,    0};
  if (plane_bytes > 0) {
    out.matrix.planes = {codes, codes + codes_bytes, codes + codes_bytes + plane_bytes,
                         static_cast<ScaleType>(scale_type)};
    out.matrix.scales_stride = plane_bytes / n_rows;
  }
  return out;
}

std::vector<WeightType> quantized_types() {
  std::vector<WeightType> out;
  for (std::size_t i = 0; i < WeightCodecs::kSize; ++i) {
    const WeightType type{static_cast<std::uint8_t>(i)};
    if (info(type).quantized) out.push_back(type);
  }
  return out;
}

// Equality is exact, not within an ulp. The reference rounds code × scale and then adds the bias;
// here one fused multiply-add rounds once. Both give the same bits because the product needs no
// rounding: a scale is an f16 or bf16 number (≤ 11 bits), or such a number times an integer of ≤ 7
// bits (≤ 18), and a code has ≤ 5 bits beside the latter and ≤ 8 beside the former, so that every
// product fits the 24 bits of f32. Only f32 scale planes (affine*g32 here) can round twice there:
// the results then differ by at most half an ulp of the product and, one a side, half an ulp of the
// sum.
TEST(WeightTypes, DecodeAsTheReferenceDoes) {
  for (const WeightType type : quantized_types()) {
    const Vectors v = load_vectors(info(type).name);
    const bool has_f32_scales =
        v.matrix.planes.scales && v.matrix.planes.scale_type == ScaleType::f32;
    std::vector<float> row(v.matrix.n_in), scales(row.size()), biases(row.size());
    std::vector<std::int16_t> codes(row.size());

    for (std::size_t r = 0; r < v.matrix.n_out; ++r) {
      v.matrix.decode(r, row.data());
      unpack_row(type, v.matrix.row(r), row.size(), codes.data(), scales.data(), biases.data());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const float expected = v.expected[r * row.size() + i];
        const float product = static_cast<float>(codes[i]) * scales[i / info(type).group];
        const float bound =
            has_f32_scales ? 0x1p-24f * (std::fabs(product) + 2.0f * std::fabs(expected)) : 0.0f;
        ASSERT_LE(std::fabs(row[i] - expected), bound)
            << info(type).name << " row " << r << " element " << i;
      }
    }
  }
}

TEST(WeightTypes, UnpackIntoCodesOfTheirBitsWhoseValuesAreTheDecodedOnes) {
  for (const WeightType type : quantized_types()) {
    const WeightTypeInfo& facts = info(type);
    const Vectors v = load_vectors(facts.name);
    std::vector<float> row(v.matrix.n_in), scales(row.size()), biases(row.size());
    std::vector<std::int16_t> codes(row.size());
    const int low = facts.is_signed ? -(1 << (facts.bits - 1)) : 0, n_codes = 1 << facts.bits;

    v.matrix.decode(1, row.data());
    unpack_row(type, v.matrix.row(1), row.size(), codes.data(), scales.data(), biases.data());

    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t g = i / facts.group;
      ASSERT_TRUE(codes[i] >= low && codes[i] < low + n_codes) << facts.name << ": " << codes[i];
      ASSERT_TRUE(facts.has_bias || biases[g] == 0.0f) << facts.name;
      ASSERT_EQ(dequantize(codes[i], scales[g], biases[g]), row[i]) << facts.name;
    }
  }
}

TEST(WeightTypes, AreConsistent) {
  WeightCodecs::for_each([]<class C>() {
    static_assert(DenseCodec<C> || QuantizedCodec<C>);
    if constexpr (C::kQuantized) {
      static_assert(C::kBlock % C::kGroup == 0 && C::kBits >= 2 && C::kBits <= 8 &&
                    !(C::kSigned && C::kHasBias));
    }
  });
  EXPECT_EQ(info(*find_weight_type("q4_k")).gguf_type, 12);
  EXPECT_EQ(info(*find_gguf_type(14)).name, "q6_k");
  EXPECT_FALSE(find_gguf_type(23));
  EXPECT_FALSE(find_weight_type("q9"));
}

TEST(WeightMatrix, GivesPartsOfAFusedProjection) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
  const WeightMatrix fused{
      *find_weight_type("f32"), 4, 2, {reinterpret_cast<const std::byte*>(values.data())}, 8, 0};

  const WeightMatrix part = fused.rows(2, 2);

  std::array<float, 2> row = {};
  part.decode(1, row.data());
  EXPECT_EQ(part.n_out, 2u);
  EXPECT_EQ(row, (std::array{7.0f, 8.0f}));
}

}  // namespace
}  // namespace kvasir::codec
