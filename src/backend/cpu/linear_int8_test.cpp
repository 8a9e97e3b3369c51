// Products with 8-bit activations (--activations int8): equal to ref:mirror's bit for bit for every
// weight type, on every instruction set, at any number of rows and threads; within the bound of
// docs/numerics.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/testing/weights.h"

namespace kvasir::backend::cpu::testing {
namespace {

std::unique_ptr<ops::Device> make_int8(int n_threads = 2, Isa isa = Isa::automatic) {
  return *make_cpu_device({.n_threads = n_threads, .isa = isa, .activations = Activations::int8});
}
std::unique_ptr<ops::Device> make_int8_mirror() {
  return ref::make_ref_device(ref::RefMode::mirror, /*int8_activations=*/true);
}

class Int8Linear : public ::testing::TestWithParam<std::string> {
 protected:
  std::mt19937 rng_{23};
  const codec::WeightTypeInfo& info() const {
    return codec::info(*codec::find_weight_type(GetParam()));
  }
  std::uint32_t n_in() const {
    const auto block = static_cast<std::uint32_t>(info().block);
    return block == 1 ? 197 : block < 256 ? 5 * block : 256;
  }
};

INSTANTIATE_TEST_SUITE_P(AllTypes, Int8Linear, ::testing::ValuesIn(all_types()), [](const auto& i) {
  return i.param;
});

TEST_P(Int8Linear, EqualsTheMirrorBitForBitAtAnyNumberOfRows) {
  const StoredWeight stored(GetParam(), 45, n_in(), rng_);
  const auto mirror = make_int8_mirror();
  const auto bias = random_floats(45, rng_);
  const auto w_mirror = *mirror->pack(stored.view(), {});
  const auto devices = every_int8_device(2);
  const auto w = *devices[0].device->pack(stored.view(), {});
  for (const std::uint32_t m : {1u, 2u, 3u, 5u, 8u, 9u, 16u, 17u, 33u, 70u}) {
    const auto x = random_floats(std::size_t{m} * n_in(), rng_);
    const auto expected = product(*mirror, *w_mirror, x, bias.data());
    for (const auto& [name, device] : devices)
      EXPECT_TRUE(same_bits(product(*device, *w, x, bias.data()), expected))
          << name << ", " << m << " rows";
  }
}

// Dense weights and exact_f32 ones do not take part.
TEST_P(Int8Linear, OnlyProductsOfCodesDifferFromTheExactMode) {
  const StoredWeight stored(GetParam(), 45, n_in(), rng_);
  const auto exact = make(), device = make_int8();
  const auto x = random_floats(std::size_t{3} * n_in(), rng_);
  for (const bool exact_f32 : {false, true}) {
    const auto a = product(*exact, **exact->pack(stored.view(), {.exact_f32 = exact_f32}), x);
    const auto b = product(*device, **device->pack(stored.view(), {.exact_f32 = exact_f32}), x);
    EXPECT_EQ(same_bits(a, b), exact_f32 || !info().quantized) << exact_f32;
  }
}

TEST_P(Int8Linear, RowsDoNotDependOnOtherRowsOrThreads) {
  const StoredWeight stored(GetParam(), 200, n_in(), rng_);
  const auto one = make_int8(1), two = make_int8(2), three = make_int8(3);
  const auto w = *one->pack(stored.view(), {});
  const auto x = random_floats(std::size_t{300} * n_in(), rng_);
  const auto all = product(*two, *w, x);

  EXPECT_TRUE(same_bits(all, product(*one, *w, x)));
  EXPECT_TRUE(same_bits(all, product(*three, *w, x)));
  for (const std::size_t m : {1u, 2u, 4u, 7u, 8u, 9u, 64u}) {
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

// docs/numerics.md: |error| <= Σ_g A_g m_g (1/254 + (2 K/group + 6) u), A_g = Σ |code·scale| +
// |bias| over the group, m_g its largest |x|.
TEST_P(Int8Linear, IsWithinTheDerivedBoundOfTheOracle) {
  if (!info().quantized) GTEST_SKIP() << "dense: linear_test";
  const StoredWeight stored(GetParam(), 40, n_in(), rng_);
  const auto device = make_int8(), oracle = make_oracle();
  const auto x = random_floats(std::size_t{6} * n_in(), rng_);
  const auto got = product(*device, **device->pack(stored.view(), {}), x);
  const auto expected = product(*oracle, **oracle->pack(stored.view(), {}), x);
  const std::size_t group = info().group, n_groups = n_in() / group;
  std::vector<std::int16_t> codes(n_in());
  std::vector<float> scales(n_groups), biases(n_groups);
  double worst = 0;
  for (std::size_t o = 0; o < 40; ++o) {
    codec::unpack_row(stored.view().type, stored.view().row(o), n_in(), codes.data(), scales.data(),
                      biases.data());
    for (std::size_t r = 0; r < 6; ++r) {
      double size = 0;
      for (std::size_t g = 0; g < n_groups; ++g) {
        double weights = 0, most = 0;
        for (std::size_t k = g * group; k < (g + 1) * group; ++k) {
          weights += std::abs(double{scales[g]} * codes[k]) + std::abs(double{biases[g]});
          most = std::max(most, std::abs(double{x[r * n_in() + k]}));
        }
        size += weights * most;
      }
      const double u = 0x1p-24, n = static_cast<double>(n_groups),
                   error = std::abs(double{got[r * 40 + o]} - double{expected[r * 40 + o]});
      EXPECT_LE(error, size * (1.0 / 254 + (2 * n + 6) * u));
      worst = std::max(worst, error / size);
    }
  }
  EXPECT_GT(worst, 1e-6);  // it is not the exact mode that was measured
}

TEST_P(Int8Linear, EmbeddingsAreThoseOfTheExactMode) {
  const StoredWeight stored(GetParam(), 50, n_in(), rng_);
  const auto exact = make(), device = make_int8();
  const std::vector<std::uint32_t> tokens{49, 0, 31, 32, 7};
  const auto embedded = [&](ops::Device& d) {
    const auto w = *d.pack(stored.view(), {});
    std::vector<float> out(tokens.size() * n_in());
    d.ops().embed(d, {.tokens = tokens,
                      .table = w.get(),
                      .scale = 2.0f,
                      .out = mat_view(out.data(), 5, n_in())});
    return out;
  };
  EXPECT_TRUE(same_bits(embedded(*device), embedded(*exact)));
}

// Parts of one layout share what they take; the bits are those of one linear each.
TEST(Int8LinearGroup, EqualsItsPartsAlone) {
  std::mt19937 rng{5};
  const auto device = make_int8(2);
  const StoredWeight q("q4_0", 70, 256, rng), k("q4_0", 33, 256, rng), other("q8_0", 45, 256, rng);
  const auto bias = random_floats(33, rng);
  const auto wq = *device->pack(q.view(), {}), wk = *device->pack(k.view(), {}),
             wo = *device->pack(other.view(), {});
  for (const auto& parts :
       {std::vector<ops::LinearPart>{{wq.get(), nullptr}, {wk.get(), bias.data()}},
        std::vector<ops::LinearPart>{{wq.get(), nullptr}, {wo.get(), nullptr}}}) {
    const std::uint32_t width = parts[0].weight->n_out() + parts[1].weight->n_out();
    for (const std::uint32_t m : {1u, 7u, 40u}) {
      const auto x = random_floats(std::size_t{m} * 256, rng);
      std::vector<float> out(std::size_t{m} * width);

      device->ops().linear_group(
          *device,
          {.x = {x.data(), m, 256, 256}, .parts = parts, .out = mat_view(out.data(), m, width)});

      const auto first = product(*device, *parts[0].weight, x, parts[0].bias),
                 second = product(*device, *parts[1].weight, x, parts[1].bias);
      for (std::size_t r = 0; r < m; ++r) {
        for (std::size_t c = 0; c < width; ++c) {
          const std::size_t n = parts[0].weight->n_out();
          ASSERT_EQ(out[r * width + c], c < n ? first[r * n + c] : second[r * (width - n) + c - n]);
        }
      }
    }
  }
}

TEST(Int8Linear, LongAndTallProductsAreTheSameOnEveryInstructionSet) {
  std::mt19937 rng{37};
  const auto plain = make_int8(2, Isa::portable);
  const auto devices = every_int8_device(2);
  for (const char* type : {"q4_0", "q4_1", "q8_0", "q6_k", "affine8g64", "affine4g128"}) {
    const StoredWeight stored(type, 70, 2816, rng);
    const auto w = *plain->pack(stored.view(), {});
    for (const std::size_t m : {1u, 6u, 70u, 520u}) {
      const auto x = random_floats(m * 2816, rng);
      const auto expected = product(*plain, *w, x);
      for (const auto& [name, device] : devices)
        EXPECT_TRUE(same_bits(product(*device, *w, x), expected))
            << type << " " << name << " " << m;
    }
  }
}

// Largest codes and activations of one sign: 16-bit sums of pairs would saturate.
TEST(Int8Linear, NothingSaturates) {
  std::mt19937 rng{41};
  const StoredWeight stored("affine8g128", 32, 256, rng);
  std::vector<std::byte> codes(std::size_t{32} * 256, std::byte{255});
  codec::WeightMatrix all_ones = stored.view();
  all_ones.planes.codes = codes.data();
  const auto mirror = make_int8_mirror();
  for (const float sign : {1.0f, -1.0f}) {
    const std::vector<float> x(std::size_t{20} * 256, sign * 3.0f);
    const auto expected = product(*mirror, **mirror->pack(all_ones, {}), x);
    for (const auto& [name, device] : every_int8_device(1))
      EXPECT_TRUE(same_bits(product(*device, **device->pack(all_ones, {}), x), expected)) << name;
  }
}

// Zeros, denormals and values below 2^-100 count as zeros; large ones do not overflow on the way.
TEST(Int8Linear, ZerosDenormalsAndLargeValuesAreTheSameEverywhere) {
  std::mt19937 rng{43};
  const StoredWeight stored("q4_1", 64, 256, rng);
  const auto mirror = make_int8_mirror();
  const auto w_mirror = *mirror->pack(stored.view(), {});
  for (const std::size_t m : {1u, 20u}) {
    auto x = random_floats(m * 256, rng);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t group = i / 32 % 8;
      x[i] *= group == 1   ? 0.0f
              : group == 2 ? 0x1p-140f
              : group == 3 ? 0x1p-110f
              : group == 4 ? 0x1p100f
              : group == 5 ? (i % 2 ? -0.0f : 0x1p-130f)
                           : 1.0f;
    }
    const auto expected = product(*mirror, *w_mirror, x);
    for (const auto& [name, device] : every_int8_device(1)) {
      const auto w = *device->pack(stored.view(), {});
      EXPECT_TRUE(same_bits(product(*device, *w, x), expected)) << name << " " << m;
    }
  }
  const std::vector<float> zeros(256, 0.0f);
  const auto device = make_int8();
  EXPECT_TRUE(same_bits(product(*device, **device->pack(stored.view(), {}), zeros),
                        std::vector<float>(64, 0.0f)));
}

// One value that is not finite makes its whole row NaN, and no other.
TEST(Int8Linear, ARowWithANaNOrAnInfinityIsNaN) {
  std::mt19937 rng{3};
  const StoredWeight stored("q4_0", 64, 64, rng);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const auto& [name, device] : every_int8_device(1)) {
      const auto w = *device->pack(stored.view(), {});
      auto x = random_floats(std::size_t{9} * 64, rng);
      const auto clean = product(*device, *w, x);
      x[4 * 64 + 11] = bad;

      const auto got = product(*device, *w, x);

      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i / 64 == 4) {
          EXPECT_TRUE(std::isnan(got[i])) << name;
        } else {
          EXPECT_EQ(got[i], clean[i]) << name;
        }
      }
    }
  }
}

TEST(Int8Device, HasAnIdentityAndALabelOfItsOwn) {
  EXPECT_NE(make_int8()->numerics_id(), make()->numerics_id());
  EXPECT_NE(make_int8_mirror()->numerics_id(), make_mirror()->numerics_id());
  EXPECT_NE(make_int8()->label().find("int8"), std::string::npos);
  for (const auto& [name, device] : every_int8_device(1))
    EXPECT_EQ(device->numerics_id(), make_int8()->numerics_id()) << name;
}

// None falls back to plain loops but the plain one.
TEST(Int8Device, EveryInstructionSetHasKernelsOfItsOwn) {
  for (const Isa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    const bool is_plain = make_int8(1, isa)->label() == make_int8(1, Isa::portable)->label();
    EXPECT_EQ(is_plain, isa == Isa::portable) << name_of(isa);
  }
}

TEST(Int8Device, ActivationsAreReadByNameAndOthersRefused) {
  EXPECT_EQ(*parse_activations("exact"), Activations::exact);
  EXPECT_EQ(*parse_activations("int8"), Activations::int8);
  const auto wrong = parse_activations("int4");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().what.find("int8"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
