// Products on the GPU: one row's bits whatever stands beside it, and the mirror's values within the
// bound of docs/numerics.md ("backend/cuda").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/testing/device_memory.h"
#include "backend/ref/ref_device.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::all_types;
using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

constexpr float kPoison = -12345.0f;

std::vector<float> product(const ops::PackedMatrix& w,
                           std::span<const float> x,
                           const float* bias = nullptr,
                           ops::Device& device = cuda_device()) {
  const auto n_rows = static_cast<std::uint32_t>(x.size() / w.n_in());
  const Array<float> in(device, std::vector<float>(x.begin(), x.end()));
  const Array<float> out(device, std::vector<float>(std::size_t{n_rows} * w.n_out(), kPoison));
  device.ops().linear(device, {.x = {in.data(), n_rows, w.n_in(), w.n_in()},
                               .weight = &w,
                               .bias = bias,
                               .out = mat_view(out.data(), n_rows, w.n_out())});
  return out.get();
}

std::span<const float> rows_of(const std::vector<float>& v,
                               std::size_t n,
                               std::size_t first,
                               std::size_t m) {
  return {v.data() + first * n, m * n};
}

std::unique_ptr<ops::Device> make_mirror() {
  return ref::make_ref_device(ref::RefMode::mirror_cuda);
}

// Σ |w| |x| of one output and row, as the product sees them.
double size_of(std::span<const float> w, std::span<const float> x, bool is_exact) {
  double sum = 0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    const float a = is_exact ? w[k] : round_to_bf16(w[k]),
                b = is_exact ? x[k] : round_to_bf16(x[k]);
    sum += std::abs(static_cast<double>(a) * static_cast<double>(b));
  }
  return sum;
}

double bound(std::size_t k, double size, bool is_exact) {
  const double u = std::ldexp(1.0, -24), n = static_cast<double>((k + 63) / 64 * 64);
  return size * u * (is_exact ? n / 32 + 16 : 9.0 / 4.0 * n + 2);
}

// How many elements are outside the bound of the mirror's.
std::size_t n_outside(const StoredWeight& stored,
                      std::span<const float> x,
                      const std::vector<float>& got,
                      bool is_exact) {
  const auto mirror = make_mirror();
  const auto w = *mirror->pack(stored.view(), {.exact_f32 = is_exact});
  const std::vector<float> in(x.begin(), x.end());
  const auto expected = ops::testing::product(*mirror, *w, in);
  const std::size_t n_in = w->n_in(), n_out = w->n_out();
  std::vector<float> row(n_in);
  std::size_t n = 0;
  for (std::size_t o = 0; o < n_out; ++o) {
    stored.view().decode(o, row.data());
    for (std::size_t t = 0; t < x.size() / n_in; ++t) {
      const double error = std::abs(static_cast<double>(got[t * n_out + o]) -
                                    static_cast<double>(expected[t * n_out + o]));
      n += !(error <= bound(n_in, size_of(row, x.subspan(t * n_in, n_in), is_exact), is_exact));
    }
  }
  return n;
}

class CudaLinear : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  std::mt19937 rng_{17};
  std::uint32_t block() const {
    return static_cast<std::uint32_t>(codec::info(*codec::find_weight_type(GetParam())).block);
  }
  // An odd number of blocks; dense: a K that fills no step.
  std::uint32_t n_in() const { return block() == 1 ? 197 : block() < 256 ? 5 * block() : 256; }
};

INSTANTIATE_TEST_SUITE_P(AllTypes, CudaLinear, ::testing::ValuesIn(all_types()), [](const auto& i) {
  return i.param;
});

TEST_P(CudaLinear, RowsDoNotDependOnOtherRows) {
  const StoredWeight stored(GetParam(), 69, n_in(), rng_);
  const auto x = random_floats(std::size_t{512} * n_in(), rng_);
  for (const bool exact : {false, true}) {
    const auto w = *cuda_device().pack(stored.view(), {.exact_f32 = exact});
    const auto all = product(*w, x);
    for (const std::size_t m : {1u, 2u, 7u, 8u, 9u, 16u, 33u, 64u, 65u, 200u}) {
      const std::size_t first = 300 - m;
      const auto some = product(*w, rows_of(x, n_in(), first, m));
      const auto expected = rows_of(all, 69, first, m);
      EXPECT_TRUE(std::memcmp(some.data(), expected.data(), expected.size_bytes()) == 0)
          << m << " rows, exact " << exact;
    }
  }
}

TEST_P(CudaLinear, IsWithinTheBoundOfTheMirrorAndAChangedWeightIsNot) {
  const StoredWeight stored(GetParam(), 45, n_in(), rng_);
  const StoredWeight other(GetParam(), 45, n_in(), rng_);
  const auto x = random_floats(std::size_t{11} * n_in(), rng_);
  for (const bool exact : {false, true}) {
    const auto w = *cuda_device().pack(stored.view(), {.exact_f32 = exact});

    const auto got = product(*w, x);

    EXPECT_EQ(n_outside(stored, x, got, exact), 0u) << "exact " << exact;
    EXPECT_GT(n_outside(other, x, got, exact), 400u);
  }
}

TEST_P(CudaLinear, EmbeddingsAreTheStoredValues) {
  const StoredWeight stored(GetParam(), 50, n_in(), rng_);
  ops::Device& device = cuda_device();
  const bool is_quantized = codec::info(*codec::find_weight_type(GetParam())).quantized;
  const std::vector<std::uint32_t> tokens{49, 0, 31, 32, 7};
  for (const bool exact : {false, true}) {
    const auto w = *device.pack(stored.view(), {.exact_f32 = exact});
    const Array<float> out(device, tokens.size() * n_in());

    device.ops().embed(device, {.tokens = tokens,
                                .table = w.get(),
                                .scale = 1.5f,
                                .out = mat_view(out.data(), 5, n_in())});

    const auto got = out.get();
    std::vector<float> expected(n_in());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      stored.view().decode(tokens[t], expected.data());
      for (std::size_t i = 0; i < n_in(); ++i) {
        const float value = exact || is_quantized ? expected[i] : round_to_bf16(expected[i]);
        ASSERT_EQ(got[t * n_in() + i], 1.5f * value) << t << " " << i << " exact " << exact;
      }
    }
  }
}

struct LargeShape {
  std::string type;
  std::uint32_t n_out, n_in;
};
class CudaLargeLinear : public ::testing::TestWithParam<LargeShape> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  std::mt19937 rng_{5};
};

INSTANTIATE_TEST_SUITE_P(Shapes,
                         CudaLargeLinear,
                         ::testing::Values(LargeShape{"bf16", 1024, 2048},
                                           LargeShape{"bf16", 2500, 1088},
                                           LargeShape{"f16", 640, 4096},
                                           LargeShape{"affine4g64", 1040, 2048},
                                           LargeShape{"affine8g32", 777, 1024},
                                           LargeShape{"q4_0", 2064, 1024},
                                           LargeShape{"q4_k", 512, 1024},
                                           LargeShape{"q6_k", 512, 1024}));

// Larger than one slab of tiles; many rows go through cuBLASLt where it is there.
TEST_P(CudaLargeLinear, RowsDoNotDependOnOtherRowsAndAreTheMirrors) {
  const LargeShape& shape = GetParam();
  const StoredWeight stored(shape.type, shape.n_out, shape.n_in, rng_);
  const auto w = *cuda_device().pack(stored.view(), {});
  const auto x = random_floats(std::size_t{600} * shape.n_in, rng_);

  const auto all = product(*w, x);

  for (const std::size_t m : {1u, 3u, 8u, 16u, 31u, 64u, 65u, 128u, 511u}) {
    const std::size_t first = (600 - m) / 2;
    const auto some = product(*w, rows_of(x, shape.n_in, first, m));
    const auto expected = rows_of(all, shape.n_out, first, m);
    EXPECT_TRUE(std::memcmp(some.data(), expected.data(), expected.size_bytes()) == 0) << m;
  }
  EXPECT_EQ(n_outside(stored, rows_of(x, shape.n_in, 0, 2), all, false), 0u);
}

class CudaProducts : public ::testing::Test {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  std::mt19937 rng_{3};
};

TEST_F(CudaProducts, TakeColumnsOfWiderMatricesAndABias) {
  ops::Device& device = cuda_device();
  for (const char* type : {"bf16", "q8_0", "q4_1", "f32"}) {
    const StoredWeight stored(type, 40, 96, rng_);
    const auto w = *device.pack(stored.view(), {.exact_f32 = std::string(type) == "f32"});
    const auto bias_values = random_floats(40, rng_);
    const Array<float> bias(device, bias_values);
    for (const std::uint32_t m : {1u, 12u, 90u}) {
      for (const std::uint32_t column : {0u, 1u, 4u}) {
        const auto wide = random_floats(std::size_t{m} * 103, rng_);
        std::vector<float> narrow;
        for (std::size_t t = 0; t < m; ++t)
          narrow.insert(narrow.end(), wide.begin() + static_cast<std::ptrdiff_t>(t * 103 + column),
                        wide.begin() + static_cast<std::ptrdiff_t>(t * 103 + column + 96));
        const auto plain = product(*w, narrow);
        const Array<float> in(device, wide);
        const Array<float> out(device, std::vector<float>(std::size_t{m} * 50, kPoison));

        device.ops().linear(device, {.x = ConstMatView{in.data(), m, 103, 103}.columns(column, 96),
                                     .weight = w.get(),
                                     .bias = bias.data(),
                                     .out = MatView{out.data(), m, 50, 50}.columns(column, 40)});

        const auto got = out.get();
        for (std::size_t t = 0; t < m; ++t) {
          for (std::size_t o = 0; o < 50; ++o) {
            const bool is_inside = o >= column && o < column + 40;
            const float expected =
                is_inside ? plain[t * 40 + o - column] + bias_values[o - column] : kPoison;
            ASSERT_EQ(got[t * 50 + o], expected) << type << " " << m << " " << t << " " << o;
          }
        }
      }
    }
  }
}

// A kernel's largest shared memory is the process's: a block of few tiles takes more than one of
// many.
TEST_F(CudaProducts, OfASecondDeviceLeaveTheFirstOnesAsTheyWere) {
  const auto second = *make_cuda_device({});
  const StoredWeight few("bf16", 72, 64, rng_), many("bf16", 16896, 64, rng_);
  const auto w = *cuda_device().pack(few.view(), {});
  const auto other = *second->pack(many.view(), {});
  for (const std::uint32_t m : {1u, 16u, 40u}) {
    const auto x = random_floats(std::size_t{m} * 64, rng_);
    const auto before = product(*w, x);
    const auto between = product(*other, x, nullptr, *second);
    EXPECT_EQ(n_outside(many, x, between, false), 0u) << m << " rows";
    EXPECT_TRUE(same_bits(product(*w, x), before)) << m << " rows";
  }
}

TEST_F(CudaProducts, AreTheSameInRecordedSteps) {
  ops::Device& device = cuda_device();
  const StoredWeight stored("affine4g64", 300, 256, rng_);
  const auto w = *device.pack(stored.view(), {});
  for (const std::uint32_t m : {1u, 5u, 20u}) {
    Array<float> in(device, std::size_t{m} * 256);
    const Array<float> out(device, std::size_t{m} * 300);
    for (int step = 0; step < 4; ++step) {  // the first is launched plainly, the third is a graph
      const auto x = random_floats(std::size_t{m} * 256, rng_);
      const auto expected = product(*w, x);
      in.set(x);

      device.begin_step(m);
      device.ops().linear(device, {.x = {in.data(), m, 256, 256},
                                   .weight = w.get(),
                                   .bias = nullptr,
                                   .out = mat_view(out.data(), m, 300)});
      ASSERT_TRUE(device.end_step().has_value());

      EXPECT_TRUE(same_bits(out.get(), expected)) << m << " rows, step " << step;
    }
  }
}

TEST_F(CudaProducts, ANaNStaysInItsRow) {
  for (const char* type : {"bf16", "q4_0"}) {
    const StoredWeight stored(type, 64, 64, rng_);
    const auto w = *cuda_device().pack(stored.view(), {});
    for (const std::size_t m : {9u, 70u}) {
      auto x = random_floats(m * 64, rng_);
      const auto clean = product(*w, x);
      x[4 * 64 + 11] = std::nanf("");

      const auto got = product(*w, x);

      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i / 64 == 4) {
          EXPECT_TRUE(std::isnan(got[i]));
        } else {
          EXPECT_EQ(got[i], clean[i]);
        }
      }
    }
  }
}

TEST_F(CudaProducts, OfHeadsAreThoseOfTheirColumns) {
  ops::Device& device = cuda_device();
  for (const char* type : {"bf16", "affine8g64", "f32"}) {
    const StoredWeight a(type, 40, 64, rng_), b(type, 40, 64, rng_), c(type, 40, 64, rng_);
    std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
    std::vector<const ops::PackedMatrix*> heads;
    for (const StoredWeight* head : {&a, &b, &c}) {
      packed.push_back(*device.pack(head->view(), {.exact_f32 = std::string(type) == "f32"}));
      heads.push_back(packed.back().get());
    }
    for (const std::uint32_t m : {1u, 19u, 130u}) {
      const Array<float> in(device, random_floats(std::size_t{m} * 240, rng_));
      const Array<float> out(device, std::size_t{m} * 150), expected(device, std::size_t{m} * 150);
      const MatView x{in.data(), m, 240, 240};

      device.ops().head_linear(device, {.x = x,
                                        .weights = heads,
                                        .x_step = 80,
                                        .out_step = 50,
                                        .out = mat_view(out.data(), m, 150)});

      for (std::uint32_t h = 0; h < 3; ++h)
        device.ops().linear(device, {.x = x.columns(80 * h, 64),
                                     .weight = heads[h],
                                     .bias = nullptr,
                                     .out = mat_view(expected.data(), m, 150).columns(50 * h, 40)});
      EXPECT_TRUE(same_bits(out.get(), expected.get())) << type << " " << m;
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
