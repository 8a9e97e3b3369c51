// KV-8…17: the spec's vectors, each codec against an f64 model, guards, packing, tables, limits.
#include "codec/kv_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codec/kv/list.h"

namespace kvasir::codec {
namespace {

struct StoredRow {
  StoredRow(const KvCodec& codec_in, std::uint32_t dim_in) : codec(codec_in), dim(dim_in) {
    for (std::size_t i = 0; i < kKvRowParts; ++i) {
      parts[i].assign(row_bytes(codec, static_cast<KvRowPart>(i), dim) + 1, std::byte{0xa5});
      row.planes[i] = parts[i].data();
    }
  }
  float scale(std::size_t g) const { return load_scale(row.planes[1], codec.scale_type, g); }
  float offset(std::size_t g) const { return load_scale(row.planes[2], codec.scale_type, g); }
  std::uint32_t code(std::size_t i) const { return code_at(row.planes[0], i, codec.bits); }
  std::vector<float> decoded() const {
    std::vector<float> out(dim);
    decode_row(codec, row, dim, out.data());
    return out;
  }
  bool wrote_past_a_part() const {
    return std::any_of(parts.begin(), parts.end(),
                       [](const auto& part) { return part.back() != std::byte{0xa5}; });
  }

  KvCodec codec;
  std::uint32_t dim;
  std::array<std::vector<std::byte>, kKvRowParts> parts;
  KvRow row;
};

StoredRow encoded(const KvCodec& codec, const std::vector<float>& x) {
  StoredRow out(codec, static_cast<std::uint32_t>(x.size()));
  encode_row(codec, x.data(), out.dim, out.row);
  EXPECT_FALSE(out.wrote_past_a_part());
  return out;
}

std::vector<float> repeated(const std::vector<float>& pattern, std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = pattern[i % pattern.size()];
  return out;
}

std::vector<float> normal(std::size_t n, std::uint32_t seed, float deviation, float mean = 0.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(mean, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = draw(rng);
  return x;
}

std::vector<KvCodec> every_codec() {
  std::vector<KvCodec> out;
  for (const ScaleType scales : {ScaleType::f32, ScaleType::f16, ScaleType::bf16}) {
    out.push_back(exact_kv(scales));
    for (const KvSide side : {KvSide::keys, KvSide::values})
      for (const KvCodec& codec : all_kv_codecs(side, scales)) out.push_back(codec);
  }
  return out;
}

TEST(KvCodecList, FindsEachFormByItsNameOnItsSide_KV8_KV36) {
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    for (const KvCodec& codec : all_kv_codecs(side, ScaleType::bf16)) {
      EXPECT_EQ(find_kv_codec(side, signature_part(codec), ScaleType::bf16), codec);
      EXPECT_TRUE(can_store(codec, 128)) << signature_part(codec);
    }
  }
  EXPECT_EQ(find_kv_codec(KvSide::keys, "turbo:8", ScaleType::bf16), turbo_keys_kv(8));
  EXPECT_EQ(find_kv_codec(KvSide::values, "turbo:8", ScaleType::bf16), turbo_values_kv(8));
  EXPECT_EQ(find_kv_codec(KvSide::keys, "turbo:3", ScaleType::bf16), std::nullopt);
  EXPECT_EQ(find_kv_codec(KvSide::keys, "bf16", ScaleType::bf16), std::nullopt);
}

// KV-9, the vectors.
TEST(AffineKv, GivesTheVectorsOfTheSpec) {
  const KvCodec codec = affine_kv(4, 64, ScaleType::f32);

  const auto mixed = encoded(codec, repeated({-1.0f, -.5f, 0.0f, .25f, .5f, .75f, 1.0f, 3.0f}, 64));
  EXPECT_EQ(mixed.scale(0), -.27272728f);
  EXPECT_EQ(mixed.offset(0), 3.0f);
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_EQ(mixed.code(i), (std::array{15u, 13u, 11u, 10u, 9u, 8u, 7u, 0u})[i % 8]);

  const auto flat = encoded(codec, repeated({2.0f}, 64));
  EXPECT_NEAR(flat.scale(0), -1e-7f, 1e-13f);
  EXPECT_EQ(flat.offset(0), 2.0f);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(flat.code(i), 0u);

  const auto two = encoded(codec, repeated({-2.0f, -1.0f}, 64));
  EXPECT_NEAR(two.scale(0), .06666667f, 4e-9f);
  EXPECT_EQ(two.offset(0), -2.0f);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(two.code(i), i % 2 == 0 ? 0u : 15u);

  const auto zeros = encoded(codec, repeated({0.0f}, 64));
  EXPECT_EQ(zeros.offset(0), 0.0f);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(zeros.code(i), 0u);
}

TEST(AffineKv, RoundsHalvesToEvenAndTakesCodesFromTheScaleBeforeRounding) {
  // Range 0 … 15: scale -1, bias 15, codes 15 - x; 0.5 and 2.5 fall between codes.
  auto x = repeated({15.0f, 0.0f, 0.5f, 2.5f}, 32);
  const auto halves = encoded(affine_kv(4, 32, ScaleType::bf16), x);
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(halves.code(i), (std::array{0u, 15u, 14u, 12u})[i % 4]);

  // The same codes whatever the scales are stored in.
  x = normal(128, 3, 1.0f);
  const auto in_f32 = encoded(affine_kv(8, 64, ScaleType::f32), x),
             in_bf16 = encoded(affine_kv(8, 64, ScaleType::bf16), x);
  EXPECT_EQ(in_f32.parts[0], in_bf16.parts[0]);
  for (std::size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(in_bf16.scale(g), round_to_bf16(in_f32.scale(g)));
    EXPECT_EQ(in_bf16.offset(g), round_to_bf16(in_f32.offset(g)));
  }
}

// The rule in f64: half a step, and the edge of larger magnitude exactly.
TEST(AffineKv, KeepsRandomGroupsWithinHalfAStep) {
  for (const int bits : {4, 8}) {
    for (const unsigned group : {32u, 64u, 128u}) {
      for (std::uint32_t seed = 0; seed < 20; ++seed) {
        const auto x = normal(256, seed, 0.1f + static_cast<float>(seed),
                              seed % 3 == 0 ? 4.0f * static_cast<float>(seed) : 0.0f);
        const auto row = encoded(affine_kv(bits, static_cast<int>(group), ScaleType::f32), x);
        const auto y = row.decoded();
        for (std::size_t g = 0; g < 256 / group; ++g) {
          const auto [low, high] =
              std::minmax_element(x.begin() + static_cast<std::ptrdiff_t>(g * group),
                                  x.begin() + static_cast<std::ptrdiff_t>((g + 1) * group));
          const double step =
              (static_cast<double>(*high) - static_cast<double>(*low)) / ((1 << bits) - 1);
          const float edge = std::abs(*low) > std::abs(*high) ? *low : *high;
          EXPECT_EQ(row.offset(g), edge);  // such groups never have edge / scale round to 0
          for (std::size_t i = g * group; i < (g + 1) * group; ++i) {
            // scale moved by at most 1/2 in `steps` >= (2^bits - 1) / 2: the far end may lose one
            // step.
            EXPECT_LE(std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])), 1.01 * step)
                << "bits " << bits << " group " << group << " seed " << seed;
          }
        }
      }
    }
  }
}

// KV-11 in f64 decides each code but for ties within f32 rounding.
TEST(TurboKeysKv, FollowsTheRuleInF64) {
  for (const int bits : {2, 4, 5, 8}) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      const auto x = normal(128, seed, 1.0f + static_cast<float>(seed % 5), 0.3f);
      const auto row = encoded(turbo_keys_kv(bits), x);
      for (std::size_t g = 0; g < 4; ++g) {
        const auto [low, high] = std::minmax_element(x.begin() + static_cast<int>(32 * g),
                                                     x.begin() + static_cast<int>(32 * g + 32));
        const double mn = static_cast<double>(*low), mx = static_cast<double>(*high);
        const double scale = bits == 8 ? (mx - mn) / 254 : (mx - mn) / ((1 << bits) - 1);
        const double zero =
            std::nearbyint(bits == 8 ? (mx + mn) / (2 * (scale + 1e-8)) : mn / (scale + 1e-8));
        EXPECT_NEAR(row.scale(g), scale, scale * 0x1p-11 * 1.001);
        EXPECT_EQ(row.offset(g), static_cast<float>(zero));
        for (std::size_t i = 32 * g; i < 32 * g + 32; ++i) {
          const double exact = static_cast<double>(x[i]) / (scale + 1e-8) - zero;
          const double code =
              bits == 8 ? static_cast<std::int8_t>(row.code(i)) : static_cast<double>(row.code(i));
          const double limit = bits == 8 ? 127.0 : (1 << bits) - 1;
          const double clamped = std::clamp(exact, bits == 8 ? -127.0 : 0.0, limit);
          EXPECT_LE(std::abs(code - clamped), 0.5 + 1e-4);
          EXPECT_EQ(row.decoded()[i], (static_cast<float>(code) + row.offset(g)) * row.scale(g));
        }
      }
    }
  }
}

// KV-12.
TEST(TurboKeysKv, StoresFlatGroupsAsAConstant) {
  const float kTiny = std::numeric_limits<float>::denorm_min();
  const auto nearly = std::nextafter(1000.0f, 2000.0f);
  struct Case {
    std::vector<float> pattern;
    float constant;
  };
  for (const auto& [pattern, constant] :
       {Case{{5.0f}, 5.0f}, Case{{0.0f}, 0.0f}, Case{{kTiny, 3 * kTiny}, 0.0f},
        Case{{1000.0f, nearly}, 1000.0f},  // zero would be beyond f16
        Case{{1e38f}, 65504.0f}, Case{{-1e38f}, -65504.0f}, Case{{-3e38f, 3e38f}, 0.0f},
        Case{{0.0f, 3e38f}, 65504.0f}, Case{{1e-9f, 2e-9f}, 0.0f}}) {
    for (const int bits : {2, 4, 5, 8}) {
      const auto row = encoded(turbo_keys_kv(bits), repeated(pattern, 64));
      EXPECT_EQ(row.offset(0), 1.0f) << pattern[0];
      for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(row.code(i), 0u);
        EXPECT_EQ(row.decoded()[i], constant) << pattern[0] << " bits " << bits;
      }
    }
  }
}

TEST(TurboKv, DecodesFiniteWhateverIsFinite) {
  for (const auto& codec : every_codec()) {
    if (!signature_part(codec).starts_with("turbo")) continue;
    for (const float scale : {1e-45f, 1e-38f, 1e-20f, 1e-9f, 6e-8f, 1.0f, 6e4f, 1e6f, 1e18f}) {
      for (const float mean : {0.0f, 1.0f, 1e5f}) {
        for (const float v : encoded(codec, normal(128, 7, scale, scale * mean)).decoded())
          EXPECT_TRUE(std::isfinite(v)) << signature_part(codec) << " " << scale;
      }
    }
  }
}

// A NaN makes its own row NaN where the codec groups it, and no byte of it is undefined.
TEST(KvCodec, KeepsANan) {
  for (const auto& codec : every_codec()) {
    auto x = normal(128, 5, 1.0f);
    x[40] = std::numeric_limits<float>::quiet_NaN();

    EXPECT_TRUE(std::isnan(encoded(codec, x).decoded()[40])) << signature_part(codec);
  }
}

TEST(KvCodec, TheCallersFloatModeDoesNotMatter) {
  for (const auto& codec : every_codec()) {
    if (codec.is_exact()) continue;
    const auto x = repeated({-3e-41f, 1e-41f, 2e-41f, -1e-42f}, 128);
    const auto plain = encoded(codec, x);
    std::fesetround(FE_UPWARD);
    const auto upward = encoded(codec, x);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(plain.parts, upward.parts) << signature_part(codec);
  }
}

// KV-13: against the rotation in f64 written as a matrix, entry (-1)^popcount(i & j).
TEST(TurboValuesKv, RotatesAndCountsBordersBelow) {
  for (const std::uint32_t dim : {64u, 128u, 256u, 512u}) {
    const auto x = normal(dim, dim, 2.0f);
    std::vector<double> y(dim, 0.0);
    for (std::uint32_t i = 0; i < dim; ++i) {
      for (std::uint32_t j = 0; j < dim; ++j) {
        const bool minus = is_negative_sign(j) != (std::popcount(i & j) % 2 == 1);
        y[i] +=
            (minus ? -1.0 : 1.0) * static_cast<double>(x[j]) / std::sqrt(static_cast<double>(dim));
      }
    }
    for (const int bits : {2, 3, 4, 5, 8}) {
      const auto row = encoded(turbo_values_kv(bits), x);
      const auto borders = codebook_of(bits).borders;
      for (std::size_t g = 0; g < dim / 32; ++g) {
        double squares = 0;
        for (std::size_t i = 32 * g; i < 32 * g + 32; ++i) squares += y[i] * y[i];
        const double scale = std::sqrt(squares / 32);
        EXPECT_NEAR(row.scale(g), scale, scale * 0x1p-11 * 1.01);
        for (std::size_t i = 32 * g; i < 32 * g + 32; ++i) {
          const double t = y[i] / (scale + 1e-8);
          const std::uint32_t code = row.code(i);
          const double below = code > 0 ? static_cast<double>(borders[code - 1]) : -1e9;
          const double above = code < borders.size() ? static_cast<double>(borders[code]) : 1e9;
          EXPECT_LT(below, t + 2e-5);
          EXPECT_GE(above, t - 2e-5);
        }
      }
    }
  }
}

TEST(TurboValuesKv, ABorderItselfBelongsBelow) {
  // All zeros: y = 0 is not above the border 0, so the largest negative centroid.
  const auto row = encoded(turbo_values_kv(2), repeated({0.0f}, 64));
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(row.code(i), 1u);
  for (const float v : row.decoded()) EXPECT_EQ(v, 0.0f);
}

// KV-16: the error of 8-bit values after turning back is that of the codebook.
TEST(TurboValuesKv, UnrotateTurnsDecodedRowsBack) {
  for (const std::uint32_t dim : {64u, 128u, 256u, 512u}) {
    const auto x = normal(dim, 11, 1.0f);
    auto y = encoded(turbo_values_kv(8), x).decoded();
    std::vector<double> z(y.begin(), y.end());

    unrotate(y.data(), dim);
    unrotate(z.data(), dim);

    double squares = 0;
    for (std::uint32_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(static_cast<double>(y[i]), z[i], 1e-5);
      squares += (z[i] - static_cast<double>(x[i])) * (z[i] - static_cast<double>(x[i]));
    }
    EXPECT_LT(std::sqrt(squares / dim), 0.02);
  }
}

// KV-14.
TEST(Signs, AreThoseOfSplitmix64From42) {
  std::uint64_t state = 42;
  std::array<int, 513> negatives{};
  std::string first;
  for (std::size_t i = 0; i < 512; ++i) {
    state += 0x9e3779b97f4a7c15u;
    std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    EXPECT_EQ(is_negative_sign(i), z >> 63 == 1) << i;
    negatives[i + 1] = negatives[i] + (is_negative_sign(i) ? 1 : 0);
    if (i < 16) first += is_negative_sign(i) ? '-' : '+';
  }
  EXPECT_EQ(first, "-++++-+-+-++---+");
  EXPECT_EQ((std::array{negatives[64], negatives[128], negatives[256], negatives[512]}),
            (std::array{32, 64, 139, 262}));
}

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double mass_above(double x) { return std::erfc(x / std::sqrt(2.0)) / 2; }

// One Newton step of "each centroid is the mean of its cell", whose Jacobian is tridiagonal.
// Positive half; the cells' borders are 0, the middles, infinity. Returns the largest move.
double newton_step(std::vector<double>& c) {
  const std::size_t n = c.size();
  std::vector<double> upper(n), right(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double low = i == 0 ? 0.0 : (c[i - 1] + c[i]) / 2;
    const bool is_last = i + 1 == n;
    const double high = is_last ? 0.0 : (c[i] + c[i + 1]) / 2;
    const double density_high = is_last ? 0.0 : density(high);
    const double mass = mass_above(low) - (is_last ? 0.0 : mass_above(high));
    const double mean = (density(low) - density_high) / mass;
    const double to_low = i == 0 ? 0.0 : density(low) * (mean - low) / mass / 2,
                 to_high = density_high * (high - mean) / mass / 2;
    const double pivot = 1 - to_low - to_high + (i == 0 ? 0.0 : to_low * upper[i - 1]);
    upper[i] = -to_high / pivot;
    right[i] = (c[i] - mean + (i == 0 ? 0.0 : to_low * right[i - 1])) / pivot;
  }
  double largest = 0;
  for (std::size_t i = n; i-- > 0;) {
    if (i + 1 < n) right[i] -= upper[i] * right[i + 1];
    c[i] -= right[i];
    largest = std::max(largest, std::abs(right[i]));
  }
  return largest;
}

// KV-15. From the tables, Newton's method finds the optimum; they must be its roundings.
TEST(Codebooks, AreTheLloydMaxOptimum) {
  for (const int bits : {2, 3, 4, 5, 8}) {
    const auto [centroids, borders] = codebook_of(bits);
    ASSERT_EQ(centroids.size(), std::size_t{1} << bits);
    ASSERT_EQ(borders.size() + 1, centroids.size());
    const std::size_t n = centroids.size() / 2;
    std::vector<double> c(centroids.begin() + static_cast<std::ptrdiff_t>(n), centroids.end());
    for (int i = 0; i < 10; ++i) newton_step(c);
    EXPECT_LT(newton_step(c), 1e-11);
    EXPECT_EQ(borders[n - 1], 0.0f);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(static_cast<double>(centroids[n + i]), c[i], c[i] * 0x1p-24 * 1.001);
      EXPECT_EQ(centroids[n - 1 - i], -centroids[n + i]);
      if (i + 1 == n) continue;
      const double middle = (c[i] + c[i + 1]) / 2;
      EXPECT_NEAR(static_cast<double>(borders[n + i]), middle, middle * 0x1p-24 * 1.001);
      EXPECT_EQ(borders[n - 2 - i], -borders[n + i]);
    }
  }
}

TEST(Codebooks, StartAndEndAsTheSpecSays) {
  const auto near = [](float got, double expected) {
    EXPECT_NEAR(static_cast<double>(got), expected, 1.3e-7);
  };
  const auto two = codebook_of(2), three = codebook_of(3), four = codebook_of(4),
             five = codebook_of(5);
  near(two.centroids[2], .45278003), near(two.centroids[3], 1.51041761);
  near(two.borders[2], .98159882);
  const double kThree[] = {.24509418, .75600528, 1.34390928, 2.1519457};
  for (std::size_t i = 0; i < 4; ++i) near(three.centroids[4 + i], kThree[i]);
  near(three.borders[4], .50054973), near(three.borders[5], 1.04995728);
  near(three.borders[6], 1.74792749);
  const double kFour[] = {.12839503, .3880483,   .65675912,  .94234046,
                          1.2562312, 1.61804639, 2.06901723, 2.73258957};
  for (std::size_t i = 0; i < 8; ++i) near(four.centroids[8 + i], kFour[i]);
  near(five.centroids[16], .06588966), near(five.centroids[31], 3.26073249);
}

// KV-10, KV-17.
TEST(Packing, PutsElementIAtBitITimesBits) {
  for (int bits = 2; bits <= 8; ++bits) {
    std::vector<std::byte> plane(static_cast<std::size_t>(64 * bits / 8));
    std::mt19937 rng(static_cast<std::uint32_t>(bits));
    std::vector<std::uint8_t> codes(64);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(rng() & ((1u << bits) - 1u));
    pack_codes(codes.data(), 64, bits, plane.data());
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(code_at(plane.data(), i, bits), codes[i]);
      for (int b = 0; b < bits; ++b) {
        const auto at = i * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
        EXPECT_EQ(std::to_integer<std::uint32_t>(plane[at / 8]) >> (at % 8) & 1u,
                  std::uint32_t{codes[i]} >> b & 1u);
      }
    }
  }
}

// KV-10, KV-17: bytes a row.
TEST(KvCodec, CountsBytes) {
  const auto bytes = [](const KvCodec& c, std::uint32_t dim) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < kKvRowParts; ++i) n += row_bytes(c, static_cast<KvRowPart>(i), dim);
    return n;
  };
  EXPECT_EQ(bytes(turbo_keys_kv(8), 128), 144u);
  EXPECT_EQ(bytes(turbo_values_kv(3), 128), 56u);
  EXPECT_EQ(bytes(affine_kv(4, 64, ScaleType::bf16), 128), 64u + 8u);
  EXPECT_EQ(bytes(affine_kv(8, 32, ScaleType::f32), 96), 96u + 24u);
  EXPECT_EQ(bytes(exact_kv(ScaleType::f16), 80), 160u);
  EXPECT_EQ(bytes(exact_kv(ScaleType::f32), 80), 320u);
}

// KV-7.
TEST(KvCodec, SaysWhatItCanStore) {
  EXPECT_TRUE(can_store(exact_kv(ScaleType::bf16), 80));
  EXPECT_TRUE(can_store(affine_kv(4, 32, ScaleType::bf16), 96));
  EXPECT_FALSE(can_store(affine_kv(4, 64, ScaleType::bf16), 96));
  EXPECT_FALSE(can_store(affine_kv(4, 128, ScaleType::bf16), 64));
  EXPECT_FALSE(can_store(affine_kv(8, 64, ScaleType::bf16), 0));
  EXPECT_FALSE(can_store(affine_kv(5, 64, ScaleType::bf16), 128));
  EXPECT_FALSE(can_store(affine_kv(4, 0, ScaleType::bf16), 128));
  EXPECT_FALSE(can_store(affine_kv(4, 16, ScaleType::bf16), 128));
  for (const std::uint32_t dim : {64u, 128u, 256u, 512u}) {
    EXPECT_TRUE(can_store(turbo_keys_kv(8), dim));
    EXPECT_TRUE(can_store(turbo_values_kv(3), dim));
  }
  for (const std::uint32_t dim : {0u, 32u, 80u, 96u, 192u, 1024u}) {
    EXPECT_FALSE(can_store(turbo_keys_kv(8), dim));
    EXPECT_FALSE(can_store(turbo_values_kv(3), dim));
  }
  EXPECT_FALSE(can_store(turbo_keys_kv(3), 128));
  EXPECT_FALSE(can_store(turbo_values_kv(6), 128));
}

// KV-36.
TEST(KvCodec, NamesItself) {
  EXPECT_EQ(signature_part(exact_kv(ScaleType::bf16)), "bf16");
  EXPECT_EQ(signature_part(exact_kv(ScaleType::f16)), "f16");
  EXPECT_EQ(signature_part(exact_kv(ScaleType::f32)), "f32");
  EXPECT_EQ(signature_part(affine_kv(4, 64, ScaleType::bf16)), "affine:4:64");
  EXPECT_EQ(signature_part(turbo_keys_kv(8)), "turbo:8");
  EXPECT_EQ(signature_part(turbo_values_kv(3)), "turbo:3");
}

// What products use means what the row means.
TEST(KvCodec, UnpackingAndDecodingAgree) {
  for (const auto& codec : every_codec()) {
    const auto x = normal(256, 21, 1.5f, 0.5f);
    const auto row = encoded(codec, x);
    const std::size_t group = group_of(codec);
    std::vector<float> codes(256), scales(256 / group), offsets(256 / group);
    unpack_row(codec, row.row, 256, codes.data(), scales.data(), offsets.data());
    const auto y = row.decoded();
    for (std::size_t i = 0; i < 256; ++i) {
      const double expected =
          static_cast<double>(codes[i]) * static_cast<double>(scales[i / group]) +
          static_cast<double>(offsets[i / group]);
      EXPECT_NEAR(static_cast<double>(y[i]), expected, 1e-5) << signature_part(codec);
    }
    EXPECT_EQ(has_offsets(codec), row_bytes(codec, KvRowPart::offsets, 256) > 0);
    if (is_rotated(codec)) {
      EXPECT_FALSE(centroids(codec).empty());
    }
  }
}

}  // namespace
}  // namespace kvasir::codec
