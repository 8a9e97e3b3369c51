// Matrix products: equal to ref:mirror bit for bit, for every weight type, and independent of
// everything but the row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/testing/weights.h"

namespace kvasir::backend::cpu::testing {
namespace {

class Linear : public ::testing::TestWithParam<std::string> {
 protected:
  std::mt19937 rng_{17};
  std::uint32_t block() const {
    return static_cast<std::uint32_t>(codec::info(*codec::find_weight_type(GetParam())).block);
  }
  // An odd number of blocks; dense: a K that fills no step.
  std::uint32_t n_in() const { return block() == 1 ? 197 : block() < 256 ? 5 * block() : 256; }
};

INSTANTIATE_TEST_SUITE_P(AllTypes, Linear, ::testing::ValuesIn(all_types()), [](const auto& i) {
  return i.param;
});

TEST_P(Linear, EqualsTheMirrorBitForBitAtAnyNumberOfRows) {
  const StoredWeight stored(GetParam(), 45, n_in(), rng_);
  const auto cpu = make(), mirror = make_mirror();
  const auto bias = random_floats(45, rng_);
  for (const bool exact : {false, true}) {
    const auto w = *cpu->pack(stored.view(), {.exact_f32 = exact});
    const auto w_mirror = *mirror->pack(stored.view(), {.exact_f32 = exact});
    for (const std::uint32_t m : {1u, 2u, 3u, 5u, 16u, 17u, 33u, 64u, 200u}) {
      const auto x = random_floats(std::size_t{m} * n_in(), rng_);

      const auto got = product(*cpu, *w, x, bias.data());

      EXPECT_TRUE(same_bits(got, product(*mirror, *w_mirror, x, bias.data())))
          << m << " rows, exact " << exact;
    }
  }
}

TEST_P(Linear, RowsDoNotDependOnOtherRowsOrThreads) {
  const StoredWeight stored(GetParam(), 200, n_in(), rng_);
  const auto one = make(1), two = make(2), three = make(3);
  const auto w = *one->pack(stored.view(), {});
  const auto x = random_floats(std::size_t{300} * n_in(), rng_);
  const auto all = product(*two, *w, x);

  EXPECT_TRUE(same_bits(all, product(*one, *w, x)));
  EXPECT_TRUE(same_bits(all, product(*three, *w, x)));
  for (const std::size_t m : {1u, 2u, 3u, 4u, 5u, 7u, 64u}) {
    for (const std::size_t first : {0u, 1u, 130u}) {
      const auto at = [&](const auto& v, std::size_t n) {
        return std::vector<float>(v.begin() + static_cast<std::ptrdiff_t>(first * n),
                                  v.begin() + static_cast<std::ptrdiff_t>((first + m) * n));
      };
      EXPECT_TRUE(same_bits(product(*two, *w, at(x, n_in())), at(all, 200)))
          << m << " rows from " << first;
    }
  }
}

// Tiles too, on any machine with AVX-512: as an emulation.
TEST_P(Linear, IsTheSameOnEveryInstructionSet) {
  const StoredWeight stored(GetParam(), 70, n_in(), rng_);
  const auto plain = make(1, Isa::portable);
  const auto w = *plain->pack(stored.view(), {});
  const auto bias = random_floats(70, rng_);
  for (const std::size_t m : {1u, 2u, 4u, 9u, 16u, 33u, 70u, 300u}) {
    const auto x = random_floats(m * n_in(), rng_);
    const auto expected = product(*plain, *w, x, bias.data());
    for (const auto& [name, device] : every_device(2))
      EXPECT_TRUE(same_bits(product(*device, *w, x, bias.data()), expected)) << name << " " << m;
  }
}

// More K than is unpacked at once, more rows than share it: by emulation too.
TEST(LinearIsa, LongAndTallProductsAreTheSameOnEveryInstructionSet) {
  std::mt19937 rng{37};
  const auto plain = make(2, Isa::portable);
  const auto devices = every_device(2);
  for (const char* type : {"bf16", "q4_0", "q4_1", "q6_k", "affine8g64", "affine4g128"}) {
    const StoredWeight stored(type, 70, 2816, rng);
    const auto w = *plain->pack(stored.view(), {});
    for (const std::size_t m : {6u, 8u, 70u, 520u}) {
      const auto x = random_floats(m * 2816, rng);
      const auto expected = product(*plain, *w, x);
      for (const auto& [name, device] : devices)
        EXPECT_TRUE(same_bits(product(*device, *w, x), expected))
            << type << " " << name << " " << m;
    }
  }
}

// ---- the grid of a group ----

// Of bf16 values: whole units, 2^bits and more of which the largest has.
std::vector<float> to_grid(std::vector<float> x, std::size_t group, int bits) {
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    float most = 0.0f;
    for (std::size_t i = begin; i < begin + group; ++i)
      most = std::max(most, std::abs(round_to_bf16(x[i])));
    const double unit = std::ldexp(1.0, std::ilogb(most) - bits);
    for (std::size_t i = begin; i < begin + group; ++i)
      x[i] = static_cast<float>(std::nearbyint(double{round_to_bf16(x[i])} / unit) * unit);
  }
  return x;
}

// f32 holds every group's product in full (rounded once where a group has several steps of K), so
// any order gives it; nothing but the scales' products is rounded else.
TEST(LinearGrid, GroupsAreMultipliedExactlyAndScaledInOrder) {
  const std::vector<std::pair<const char*, int>> types{
      {"q4_0", 13},       {"q4_1", 13},       {"affine4g64", 13}, {"affine4g128", 12},
      {"affine3g32", 13}, {"q8_0", 11},       {"q6_k", 13},       {"affine8g32", 11},
      {"affine8g64", 11}, {"affine6g64", 12}, {"q5_1", 13},       {"iq4_nl", 11}};
  std::mt19937 rng{53};
  for (const auto& [type, bits] : types) {
    const codec::WeightTypeInfo& info = codec::info(*codec::find_weight_type(type));
    const std::size_t n_in = std::max<std::size_t>(info.block, 2 * info.group);
    const StoredWeight stored(type, 40, static_cast<std::uint32_t>(n_in), rng);
    auto x = random_floats(n_in, rng);
    for (std::size_t k = 0; k < n_in; k += 3) x[k] *= k % 2 ? 1e-4f : 40.0f;
    const auto on_grid = to_grid(x, info.group, bits);
    const float shift = info.bits == 8 && !info.is_signed ? 128.0f : 0.0f;
    std::vector<std::int16_t> codes(n_in);
    std::vector<float> scales(n_in / info.group), biases(n_in / info.group), expected(40);
    for (std::size_t o = 0; o < 40; ++o) {
      codec::unpack_row(stored.view().type, stored.view().row(o), n_in, codes.data(), scales.data(),
                        biases.data());
      for (std::size_t g = 0; g < scales.size(); ++g) {
        double c = 0, sum = 0;
        for (std::size_t k = g * info.group; k < (g + 1) * info.group; ++k) {
          c += double{on_grid[k]} * (codes[k] - shift);
          sum += double{on_grid[k]};
        }
        if (info.group <= 32) {
          ASSERT_EQ(static_cast<double>(static_cast<float>(c)), c) << type;
        }
        const float bias = shift > 0 ? std::fma(shift, scales[g], biases[g]) : biases[g];
        expected[o] = std::fma(scales[g], static_cast<float>(c), expected[o]);
        if (info.has_bias) expected[o] = std::fma(bias, static_cast<float>(sum), expected[o]);
      }
    }
    for (const std::size_t m : {1u, 7u}) {
      std::vector<float> rows, all;
      for (std::size_t r = 0; r < m; ++r) {
        rows.insert(rows.end(), x.begin(), x.end());
        all.insert(all.end(), expected.begin(), expected.end());
      }
      for (const auto& [name, device] : every_device(1))
        EXPECT_TRUE(same_bits(product(*device, **device->pack(stored.view(), {}), rows), all))
            << type << " " << name << " " << m;
    }
  }
}

// What the grid's bits are derived from.
TEST_P(Linear, CodesAreWithinTheirBits) {
  const codec::WeightTypeInfo& info = codec::info(*codec::find_weight_type(GetParam()));
  if (!info.quantized) GTEST_SKIP() << "dense";
  const StoredWeight stored(GetParam(), 200, n_in(), rng_);
  const int most = info.is_signed ? 1 << (info.bits - 1) : (1 << info.bits) - 1;
  std::vector<std::int16_t> codes(n_in());
  std::vector<float> scales(n_in() / info.group), biases(n_in() / info.group);
  for (std::size_t o = 0; o < 200; ++o) {
    codec::unpack_row(stored.view().type, stored.view().row(o), n_in(), codes.data(), scales.data(),
                      biases.data());
    for (const std::int16_t code : codes) {
      ASSERT_LE(code, most);
      ASSERT_GE(code, info.is_signed ? -most : 0);
    }
  }
}

// Zeros, denormals and groups below 2^-100 count as zeros; so do far smaller values in a group.
TEST(LinearGrid, ZerosDenormalsAndLargeValuesAreTheSameEverywhere) {
  std::mt19937 rng{43};
  const auto mirror = make_mirror();
  for (const auto& [type, m] : std::vector<std::pair<const char*, std::size_t>>{
           {"q4_1", 1}, {"q4_1", 4}, {"q4_1", 20}, {"q8_0", 1}, {"q8_0", 20}}) {
    const StoredWeight stored(type, 64, 256, rng);
    auto x = random_floats(m * 256, rng);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t group = i / 32 % 8;
      x[i] *= group == 1   ? 0.0f
              : group == 2 ? 0x1p-140f
              : group == 3 ? 0x1p-110f
              : group == 4 ? 0x1p90f
              : group == 5 ? (i % 2 ? -0.0f : 0x1p-130f)
              : group == 6 ? (i % 4 ? 0x1p-20f : 1.0f)
                           : 1.0f;
    }
    const auto expected = product(*mirror, **mirror->pack(stored.view(), {}), x);
    for (const auto& [name, device] : every_device(1)) {
      const auto w = *device->pack(stored.view(), {});
      EXPECT_TRUE(same_bits(product(*device, *w, x), expected)) << type << " " << name << " " << m;
    }
  }
}

TEST(LinearIsa, EveryInstructionSetKeepsTheSameNumericsId) {
  for (const auto& [name, device] : every_device(1))
    EXPECT_EQ(device->numerics_id(), make(1, Isa::portable)->numerics_id()) << name;
}

// Side by side they share x made ready where one form serves all, else each takes its own.
TEST(LinearGroup, HasTheBitsOfItsParts) {
  std::mt19937 rng{43};
  constexpr std::uint32_t kIn = 512;
  const std::vector<std::vector<const char*>> groups{{"q4_0", "q4_0", "q4_0"},
                                                     {"affine4g64", "affine8g64"},
                                                     {"affine4g64", "affine4g32"},
                                                     {"q8_0", "bf16", "q6_k"}};
  for (const auto& [name, device] : every_device(2)) {
    for (const auto& types : groups) {
      std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
      std::vector<ops::LinearPart> parts;
      std::uint32_t n_out = 0;
      const auto bias = random_floats(100, rng);
      for (const char* type : types) {
        const std::uint32_t n = 40 + 20 * static_cast<std::uint32_t>(parts.size());
        packed.push_back(*device->pack(StoredWeight(type, n, kIn, rng).view(), {}));
        parts.push_back({packed.back().get(), parts.empty() ? nullptr : bias.data()});
        n_out += n;
      }
      for (const std::uint32_t m : {0u, 1u, 3u, 16u, 70u}) {
        const auto x = random_floats(std::size_t{m} * kIn, rng);
        std::vector<float> got(std::size_t{m} * n_out, -1.0f), expected(got);
        const ops::LinearGroupArgs args{
            {x.data(), m, kIn, kIn}, parts, mat_view(got.data(), m, n_out)};

        device->ops().linear_group(*device, args);

        ops::linear_group_composed(*device, {args.x, parts, mat_view(expected.data(), m, n_out)});
        EXPECT_TRUE(same_bits(got, expected)) << name << " " << types[0] << " " << m;
      }
    }
  }
}

class LinearOn : public ::testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, LinearOn, ::testing::ValuesIn(kIsas), [](const auto& i) {
  return std::string(name_of(i.param));
});

// Long K and many panels, whole and in parts: what a model's layers are.
TEST_P(LinearOn, EqualsPortableOnLargeMatrices) {
  if (!cpu_supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
  std::mt19937 rng{29};
  const auto plain = make(2, Isa::portable), device = make(2, GetParam());
  for (const char* type : {"bf16", "q8_0", "q4_0", "q4_1", "q6_k", "affine4g64", "affine8g128"}) {
    const StoredWeight stored(type, 200, 1536, rng);
    const auto w = *plain->pack(stored.view(), {});
    for (const std::size_t m : {1u, 3u, 16u, 50u}) {
      const auto x = random_floats(m * 1536, rng);
      EXPECT_TRUE(same_bits(product(*device, *w, x), product(*plain, *w, x))) << type << " " << m;
    }
  }
}

// Small and large values and zeros of both signs: what is flushed is flushed alike.
TEST_P(LinearOn, FlushesDenormalsAlike) {
  if (!cpu_supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
  std::mt19937 rng{31};
  const auto plain = make(1, Isa::portable), device = make(1, GetParam());
  for (const char* type : {"bf16", "q4_0"}) {
    const StoredWeight stored(type, 64, 256, rng);
    const auto w = *plain->pack(stored.view(), {});
    auto x = random_floats(std::size_t{20} * 256, rng);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i % 3 == 0 ? x[i] * 0x1p-126f : i % 7 == 0 ? -0.0f : x[i] * 0x1p-100f;
    EXPECT_TRUE(same_bits(product(*device, *w, x), product(*plain, *w, x))) << type;
  }
}

TEST(Isa, NamesAreReadBackAndOthersRefused) {
  for (const Isa isa : kIsas) EXPECT_EQ(*parse_isa(name_of(isa)), isa);
  EXPECT_EQ(*parse_isa("auto"), Isa::automatic);
  const auto wrong = parse_isa("sse9");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().what.find("avx2"), std::string::npos);
}

TEST(Isa, ADeviceOfOneThatTheMachineLacksIsRefusedByName) {
  for (const Isa isa : kIsas) {
    const auto device = make_cpu_device({.n_threads = 1, .isa = isa});
    ASSERT_EQ(device.has_value(), cpu_supports(isa));
    if (!device) {
      EXPECT_EQ(device.error().code, Errc::unsupported);
      EXPECT_NE(device.error().what.find(name_of(isa)), std::string::npos);
    }
  }
}

// docs/numerics.md: |error| <= Σ |w| |x| · (u_x + (K/2 + K/32 + 3) u), u_x = 2^-8 when x is rounded
// (and as much again when w is), u = 2^-24.
TEST_P(Linear, IsWithinTheDerivedBoundOfTheOracle) {
  const StoredWeight stored(GetParam(), 40, n_in(), rng_);
  const auto cpu = make(), oracle = make_oracle();
  const auto x = random_floats(std::size_t{6} * n_in(), rng_);
  for (const bool exact : {false, true}) {
    const auto got = product(*cpu, **cpu->pack(stored.view(), {.exact_f32 = exact}), x);
    const auto expected = product(*oracle, **oracle->pack(stored.view(), {}), x);
    std::vector<float> w(n_in());
    const codec::WeightTypeInfo& info = codec::info(*codec::find_weight_type(GetParam()));
    std::vector<std::int16_t> codes(n_in());
    std::vector<float> scales(n_in()), biases(n_in());
    for (std::size_t o = 0; o < 40; ++o) {
      stored.view().decode(o, w.data());
      if (info.quantized)
        codec::unpack_row(stored.view().type, stored.view().row(o), n_in(), codes.data(),
                          scales.data(), biases.data());
      for (std::size_t r = 0; r < 6; ++r) {
        double size = 0;
        for (std::size_t k = 0; k < n_in(); ++k) {
          double magnitude = std::abs(static_cast<double>(w[k]));
          if (info.quantized) {
            magnitude = std::abs(static_cast<double>(codes[k]) *
                                 static_cast<double>(scales[k / info.group])) +
                        std::abs(static_cast<double>(biases[k / info.group]));
          }
          size += magnitude * std::abs(static_cast<double>(x[r * n_in() + k]));
        }
        const double u = std::ldexp(1.0, -24), k = n_in();
        const double bound =
            size * ((exact ? 0.0 : 2 * std::ldexp(1.0, -8)) + (k / 2 + k / 16 + 3) * u);
        EXPECT_LE(std::abs(static_cast<double>(got[r * 40 + o]) -
                           static_cast<double>(expected[r * 40 + o])),
                  bound);
      }
    }
  }
}

TEST_P(Linear, EmbeddingsAreTheStoredValues) {
  const StoredWeight stored(GetParam(), 50, n_in(), rng_);
  const auto cpu = make();
  const auto w = *cpu->pack(stored.view(), {.exact_f32 = true});
  const std::vector<std::uint32_t> tokens{49, 0, 31, 32, 7};
  std::vector<float> out(tokens.size() * n_in()), expected(n_in());

  cpu->ops().embed(
      *cpu,
      {.tokens = tokens, .table = w.get(), .scale = 2.0f, .out = mat_view(out.data(), 5, n_in())});

  for (std::size_t t = 0; t < tokens.size(); ++t) {
    stored.view().decode(tokens[t], expected.data());
    for (std::size_t i = 0; i < n_in(); ++i)
      ASSERT_EQ(out[t * n_in() + i], 2.0f * expected[i]) << t << " " << i;
  }
}

// What is not finite, or as large as no activation is, makes its row NaN and no other.
TEST(LinearNaN, StaysInItsRow) {
  std::mt19937 rng{3};
  const StoredWeight nibbles("q4_0", 64, 64, rng), bytes("q8_0", 64, 64, rng);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [name, device] : every_device(1)) {
    for (const float bad : {std::nanf(""), infinity, -infinity, 0x1p100f}) {
      for (const std::size_t m : {2u, 3u, 9u, 10u}) {
        const auto w = *device->pack((m % 2 ? nibbles : bytes).view(), {});
        auto x = random_floats(m * 64, rng);
        const auto clean = product(*device, *w, x);
        x[64 + 11] = bad;

        const auto got = product(*device, *w, x);

        for (std::size_t i = 0; i < got.size(); ++i) {
          if (i / 64 == 1) {
            EXPECT_TRUE(std::isnan(got[i])) << name << " " << bad;
          } else {
            EXPECT_EQ(got[i], clean[i]) << name << " " << bad;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
