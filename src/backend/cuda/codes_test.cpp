// Every way that decodes codes makes the weight that docs/numerics.md defines, bf16(fma(code,
// scale, bias)): rows of one 1 give a product's weights one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/testing/device_memory.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::all_types;
using ops::testing::StoredWeight;

// How many of a matrix's weights products of n_rows rows see otherwise than they are defined.
std::size_t n_wrong(const codec::WeightMatrix& stored, std::uint32_t n_rows) {
  ops::Device& device = cuda_device();
  const auto w = *device.pack(stored, {});
  const std::uint32_t n_in = stored.n_in, n_out = stored.n_out;
  std::vector<std::vector<float>> expected(n_out, std::vector<float>(n_in));
  for (std::uint32_t o = 0; o < n_out; ++o) stored.decode(o, expected[o].data());
  std::vector<float> ones(std::size_t{n_rows} * n_in);
  Array<float> x(device, ones.size());
  const Array<float> out(device, std::size_t{n_rows} * n_out);
  std::size_t n = 0;
  for (std::uint32_t first = 0; first < n_in; first += n_rows) {
    std::fill(ones.begin(), ones.end(), 0.0f);
    const std::uint32_t n_here = std::min(n_rows, n_in - first);
    for (std::uint32_t i = 0; i < n_here; ++i) ones[std::size_t{i} * n_in + first + i] = 1.0f;
    x.set(ones);
    device.ops().linear(device, {.x = mat_view(x.data(), n_rows, n_in),
                                 .weight = w.get(),
                                 .bias = nullptr,
                                 .out = mat_view(out.data(), n_rows, n_out)});
    const std::vector<float> got = out.get();
    for (std::uint32_t i = 0; i < n_here; ++i)
      for (std::uint32_t o = 0; o < n_out; ++o)
        n += got[std::size_t{i} * n_out + o] != round_to_bf16(expected[o][first + i]);
  }
  return n;
}

// n_rows in a tile of 8, of 16, of 64, and decoded beforehand.
constexpr std::uint32_t kRows[] = {1, 8, 16, 64, 300};

class CudaCodes : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
};

INSTANTIATE_TEST_SUITE_P(AllTypes, CudaCodes, ::testing::ValuesIn(all_types()), [](const auto& i) {
  return i.param;
});

TEST_P(CudaCodes, AreTheDefinedWeights) {
  std::mt19937 rng(23);
  const std::size_t block = codec::info(*codec::find_weight_type(GetParam())).block;
  const StoredWeight stored(GetParam(), 72, block == 1 ? 72 : 256, rng);
  for (const std::uint32_t n_rows : kRows)
    EXPECT_EQ(n_wrong(stored.view(), n_rows), 0u) << n_rows << " rows";
}

// Groups of 64 with all codes, a scale and a bias each.
struct Affine {
  static constexpr std::uint32_t kGroup = 64;
  std::vector<std::uint32_t> codes;
  std::vector<std::uint16_t> scales, biases;
  codec::WeightMatrix view;

  // pairs: of each row the same number.
  Affine(int bits,
         std::uint32_t n_out,
         codec::ScaleType kind,
         const std::vector<std::pair<float, float>>& pairs) {
    const auto n_groups = static_cast<std::uint32_t>(pairs.size()) / n_out;
    const std::uint32_t n_in = n_groups * kGroup, in_word = 32 / static_cast<std::uint32_t>(bits);
    codes.resize(std::size_t{n_out} * n_in / in_word);
    for (std::size_t i = 0; i < std::size_t{n_out} * n_in; ++i) {
      // All 16 in a group; of 256 the lowest, the highest and others.
      const std::size_t code = bits == 4 ? i % 16 : i % 3 == 0 ? i % 64 : 255 - i * 7 % 256;
      codes[i / in_word] |= static_cast<std::uint32_t>(code) << i % in_word * bits;
    }
    const auto half = [&](float v) {
      return kind == codec::ScaleType::bf16 ? to_bf16(v).bits : to_f16(v).bits;
    };
    for (const auto& [s, b] : pairs) {
      scales.push_back(half(s));
      biases.push_back(half(b));
    }
    view.type = *codec::find_weight_type(bits == 4 ? "affine4g64" : "affine8g64");
    view.n_out = n_out;
    view.n_in = n_in;
    view.codes_stride = n_in / in_word * 4;
    view.scales_stride = std::size_t{n_groups} * 2;
    view.planes.codes = reinterpret_cast<const std::byte*>(codes.data());
    view.planes.scales = reinterpret_cast<const std::byte*>(scales.data());
    view.planes.biases = reinterpret_cast<const std::byte*>(biases.data());
    view.planes.scale_type = kind;
  }
};

float rounded(float v, codec::ScaleType kind) {
  return kind == codec::ScaleType::bf16 ? round_to_bf16(v) : to_f32(to_f16(v));
}

// Scales of all mantissas and of exponents from 2^low to 2^high, of both signs and 0, and biases
// near and far from them, among them 0.
std::vector<std::pair<float, float>> pairs_within(int low,
                                                  int high,
                                                  codec::ScaleType kind,
                                                  std::size_t n) {
  std::mt19937 rng(41);
  std::uniform_int_distribution<int> exponent(low, high), mantissa(128, 255), distance(-9, 9),
      one_of(0, 15);
  const auto number = [&](int e) {
    const float v = std::ldexp(static_cast<float>(mantissa(rng)), e - 7);
    return one_of(rng) < 3 ? -v : v;
  };
  std::vector<std::pair<float, float>> out;
  while (out.size() < n) {
    const int e = exponent(rng);
    const float s = one_of(rng) == 0 ? 0.0f : number(e);
    const float b = one_of(rng) == 0 ? 0.0f : number(std::min(e + distance(rng), high + 9));
    out.emplace_back(rounded(s, kind), rounded(b, kind));
  }
  return out;
}

struct Range {
  int bits;
  codec::ScaleType kind;
  int low, high;  // exponents of scales
};

// The ranges end where other layouts of scales begin: 4-bit scales below 2^-1 and 8-bit ones below
// 2^-5 are stored shifted.
constexpr Range kRanges[] = {
    {4, codec::ScaleType::bf16, -60, -2}, {4, codec::ScaleType::bf16, -12, -2},
    {4, codec::ScaleType::bf16, -8, -1},  {4, codec::ScaleType::bf16, -60, 20},
    {8, codec::ScaleType::bf16, -60, -6}, {8, codec::ScaleType::bf16, -14, -6},
    {8, codec::ScaleType::bf16, -10, -5}, {8, codec::ScaleType::bf16, -60, 20},
    {4, codec::ScaleType::f16, -13, 3},   {8, codec::ScaleType::f16, -13, 3}};

TEST(CudaCodesOfAllScales, AreTheDefinedWeights) {
  KVASIR_NEEDS_CUDA();
  for (const Range& r : kRanges) {
    constexpr std::uint32_t kOut = 64;
    const Affine stored(r.bits, kOut, r.kind, pairs_within(r.low, r.high, r.kind, kOut * 32));
    for (const std::uint32_t n_rows : {8u, 16u, 64u, 512u})
      EXPECT_EQ(n_wrong(stored.view, n_rows), 0u)
          << r.bits << " bits, scales 2^" << r.low << " to 2^" << r.high << ", " << n_rows
          << " rows";
  }
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
