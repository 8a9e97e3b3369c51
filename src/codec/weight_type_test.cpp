#include "codec/weight_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
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
  ColumnLayout columns;
  WeightMatrix matrix;
  std::vector<float> expected;  // [n_out, n_in]
};

void load_vectors(std::string_view name, Vectors& out) {
  const std::string path = std::string(KVASIR_TEST_DATA "/codecs/").append(name).append(".bin");
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> raw((std::istreambuf_iterator<char>(in)),
                              std::istreambuf_iterator<char>());
  std::array<std::uint32_t, 5> head = {};
  EXPECT_GT(raw.size(), sizeof head) << path;
  std::memcpy(head.data(), raw.data(), sizeof head);
  const auto [n_rows, n_in, codes_bytes, plane_bytes, scale_type] = head;

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
  if (info(out.matrix.type).scale_plane == ScalePlane::columns) {
    out.columns = {n_rows, static_cast<std::uint32_t>(info(out.matrix.type).group),
                   name.starts_with("gptq") ? 1u : 0u};
    out.matrix.planes.columns = &out.columns;
    out.matrix.codes_stride = out.matrix.scales_stride = 0;
  }
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
// product fits the 24 bits of f32. (IQ4_XS: 11 bits times 6, codes of 7.) Only f32 scale planes
// with biases (affine*g32 here) can round twice there: the results then differ by at most half an
// ulp of the product and, one a side, half an ulp of the sum.
TEST(WeightTypes, DecodeAsTheReferenceDoes) {
  for (const WeightType type : quantized_types()) {
    Vectors v;
    load_vectors(info(type).name, v);
    const bool has_f32_scales = info(type).scale_plane == ScalePlane::floats &&
                                v.matrix.planes.scale_type == ScaleType::f32;
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

TEST(WeightTypes, OfScaledFloatsDecodeAsTheReferenceDoes) {
  for (const char* const name : {"mxfp8g32", "f8_e4m3"}) {
    Vectors v;
    load_vectors(name, v);
    std::vector<float> row(v.matrix.n_in);
    for (std::size_t r = 0; r < v.matrix.n_out; ++r) {
      v.matrix.decode(r, row.data());
      for (std::size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(row[i], v.expected[r * row.size() + i]) << name << " " << r << " " << i;
    }
  }
}

TEST(WeightTypes, F8WithoutScalesIsTheFloatsThemselves_MOD50) {
  constexpr std::array codes{0x00, 0x01, 0x08, 0x38, 0x7e, 0xc0, 0x80, 0x7f};
  std::array<std::byte, codes.size()> bytes{};
  std::array<float, codes.size()> out{};
  for (std::size_t i = 0; i < codes.size(); ++i) bytes[i] = static_cast<std::byte>(codes[i]);

  decode_row(*find_weight_type("f8_e4m3"), {bytes.data()}, out.size(), out.data());

  constexpr std::array expected{0.0f, 0x1p-9f, 0x1p-6f, 1.0f, 448.0f, -2.0f, -0.0f};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()));
  EXPECT_TRUE(std::isnan(out.back()));
}

// The sums are of the reference's grids, one signed byte a coordinate; random blocks meet only some
// points.
TEST(IqGrids, HoldThePointsOfTheFormat_MOD52) {
  const auto crc32 = [](const std::vector<std::int8_t>& bytes) {
    std::uint32_t crc = ~0u;
    for (const std::int8_t b : bytes) {
      crc ^= static_cast<std::uint8_t>(b);
      for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1u ? 0xedb88320u : 0u);
    }
    return ~crc;
  };
  const auto sum_of = [&](const auto& grid, unsigned n, auto&& coordinate) {
    std::vector<std::int8_t> all;
    for (const std::uint16_t point : grid) {
      for (unsigned k = 0; k < n; ++k)
        all.push_back(static_cast<std::int8_t>(coordinate(point >> (16 / n * k))));
    }
    return crc32(all);
  };
  const auto iq2 = [](int bits) { return kIq2Magnitudes[bits & 3]; };
  EXPECT_EQ(sum_of(kIq2XxsGrid, 8, iq2), 0x9924ff02u);
  EXPECT_EQ(sum_of(kIq2XsGrid, 8, iq2), 0xfa1e1bfdu);
  EXPECT_EQ(sum_of(kIq2SGrid, 8, iq2), 0x25ae5bf1u);
  EXPECT_EQ(sum_of(kIq3XxsGrid, 4, [](int bits) { return kIq3XxsMagnitudes[bits & 7]; }),
            0x07ba9ed0u);
  EXPECT_EQ(sum_of(kIq3SGrid, 4, [](int bits) { return 2 * (bits & 7) + 1; }), 0xf576e4f3u);
  EXPECT_EQ(sum_of(kIq1Grid, 8, [](int bits) { return (bits & 3) - 1; }), 0xb85e6ccfu);
}

TEST(WeightTypes, UnpackIntoCodesOfTheirBitsWhoseValuesAreTheDecodedOnes) {
  for (const WeightType type : quantized_types()) {
    const WeightTypeInfo& facts = info(type);
    Vectors v;
    load_vectors(facts.name, v);
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
    static_assert(DenseCodec<C> || RowCodec<C> || QuantizedCodec<C>);
    if constexpr (C::kQuantized) {
      static_assert(C::kBlock % C::kGroup == 0 && C::kBits >= 2 && C::kBits <= 8 &&
                    !(C::kSigned && C::kHasBias));
    }
  });
  EXPECT_EQ(info(*find_weight_type("q4_k")).gguf_type, 12);
  EXPECT_EQ(info(*find_gguf_type(14)).name, "q6_k");
  EXPECT_EQ(info(*find_gguf_type(39)).name, "mxfp4");
  EXPECT_EQ(info(*find_weight_type("mxfp4g32")).gguf_type, -1);
  EXPECT_FALSE(find_gguf_type(40));
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

TEST(WeightMatrix, RowsFindTheirScalesWhenBlocksOfRowsShareThem_MOD50) {
  constexpr std::uint32_t n_out = 300;
  const std::vector<std::byte> ones(n_out, std::byte{0x38});
  const std::vector<float> scales{2, 3, 5};
  WeightMatrix m{*find_weight_type("f8_e4m3"), n_out, 1, {ones.data()}, 1, sizeof(float)};
  m.planes.scales = reinterpret_cast<const std::byte*>(scales.data());
  m.rows_per_scale = 128;
  const auto value = [](const WeightMatrix& of, std::size_t r) {
    float out = 0;
    of.decode(r, &out);
    return out;
  };

  const WeightMatrix part = m.rows(100, 150), inner = part.rows(40, 100);

  EXPECT_EQ(value(m, 127), 2.0f);
  EXPECT_EQ(value(m, 128), 3.0f);
  EXPECT_EQ(value(m, 299), 5.0f);
  EXPECT_EQ(value(part, 27), 2.0f);
  EXPECT_EQ(value(part, 28), 3.0f);
  EXPECT_EQ(value(inner, 0), 3.0f);    // row 140
  EXPECT_EQ(value(inner, 115), 3.0f);  // row 255
  EXPECT_EQ(value(inner, 116), 5.0f);
}

TEST(WeightMatrix, GivesEverySecondRow_MOD34) {
  const std::vector<float> values{1, 2, 3, 4, 5};
  const WeightMatrix m{
      *find_weight_type("f32"), 5, 1, {reinterpret_cast<const std::byte*>(values.data())}, 4, 0};
  float out = 0;

  m.every(2, 1).decode(1, &out);

  EXPECT_EQ(m.every(2, 0).n_out, 3u);
  EXPECT_EQ(m.every(2, 1).n_out, 2u);
  EXPECT_EQ(out, 4.0f);
}

}  // namespace
}  // namespace kvasir::codec
