// Products by whole warpgroups give the bits of the plain kernel, alone and side by side, with an
// activation or without; kernels that begin early give those of kernels in turn.
#include "backend/cuda/device/wide.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/detail/products.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/testing/device_memory.h"
#include "ops/fused.h"
#include "ops/testing.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

#define KVASIR_NEEDS_WIDE() \
  KVASIR_NEEDS_CUDA();      \
  if (!has_wide_products()) GTEST_SKIP() << "no warpgroup products"

// By the plain kernel.
std::vector<float> plain_product(const ops::PackedMatrix& packed,
                                 ConstMatView x,
                                 const float* bias) {
  CudaDevice& device = cuda_of(cuda_device());
  const Weight& w = matrix_of(&packed).weight;
  const Array<float> out(device, std::size_t{x.n_rows} * w.n_out);
  launch_product(device.queue(), {.weight = w,
                                  .x = device.products().converted(x, w.k, rows_of_tile(x.n_rows)),
                                  .x_stride = w.k,
                                  .n_rows = x.n_rows,
                                  .x_is_bf16 = 1,
                                  .bias = bias,
                                  .out = out.data(),
                                  .out_stride = w.n_out,
                                  .grouped = {},
                                  .chunk_bytes = w.chunk_bytes,
                                  .n_sms = static_cast<std::uint32_t>(device.n_multiprocessors()),
                                  .n_warps = 0,
                                  .n_slots = 0});
  return out.get();
}

struct Shape {
  const char* type;
  std::uint32_t n_out, n_in;
};

// Fewer tiles than multiprocessors, one pass and many, K of one stage and of more than the ring
// holds, last tiles, stages and turns that are not whole.
constexpr Shape kShapes[] = {
    {"bf16", 16, 64},           {"bf16", 40, 320},          {"bf16", 1000, 14336},
    {"bf16", 2500, 1088},       {"bf16", 9000, 256},        {"bf16", 30000, 128},
    {"bf16", 3001, 192},        {"bf16", 6200, 320},        {"bf16", 8300, 64},
    {"bf16", 12600, 192},       {"bf16", 14600, 512},       {"affine4g64", 40, 320},
    {"affine4g64", 600, 7168},  {"affine4g64", 9000, 256},  {"affine4g64", 30000, 128},
    {"affine8g32", 1500, 1024}, {"affine4g128", 2000, 512}, {"q4_0", 2064, 1024},
    {"q8_0", 520, 2048},        {"q4_k", 1100, 512},        {"q6_k", 3000, 512},
    {"q5_1", 100, 640},         {"affine8g64", 9000, 256},  {"q4_0", 9000, 256},
    {"q8_0", 9000, 384},        {"q4_k", 9000, 256},        {"q6_k", 9000, 256},
    {"q4_1", 9000, 128},        {"affine4g64", 7000, 1024}, {"affine8g64", 7000, 512},
    {"affine4g64", 18000, 704}, {"affine4g32", 17500, 512}, {"q4_0", 18000, 1024},
    {"q4_k", 18000, 1280}};

TEST(CudaWide, GivesThePlainKernelsBits) {
  KVASIR_NEEDS_WIDE();
  CudaDevice& device = cuda_of(cuda_device());
  std::mt19937 rng(11);
  for (const Shape& s : kShapes) {
    const auto w = *device.pack(StoredWeight(s.type, s.n_out, s.n_in, rng).view(), {});
    const Array<float> bias(device, random_floats(s.n_out, rng));
    const ops::LinearPart part{w.get(), bias.data()};
    for (const std::uint32_t n_rows : {1u, 2u, 8u, 9u, 16u, 17u, 30u, 64u, 70u}) {
      const Array<float> x(device, random_floats(std::size_t{n_rows} * s.n_in, rng));
      const Array<float> out(device, std::size_t{n_rows} * s.n_out);
      const ConstMatView rows = mat_view(x.data(), n_rows, s.n_in);

      ASSERT_TRUE(multiply_wide(device, rows, {&part, 1}, mat_view(out.data(), n_rows, s.n_out)));

      EXPECT_TRUE(same_bits(out.get(), plain_product(*w, rows, bias.data())))
          << s.type << " " << s.n_out << " x " << s.n_in << ", " << n_rows << " rows";
    }
  }
}

TEST(CudaWide, PartsStandSideBySide) {
  KVASIR_NEEDS_WIDE();
  CudaDevice& device = cuda_of(cuda_device());
  constexpr std::uint32_t kIn = 512, kOuts[] = {2048, 250, 250}, kAll = 2548;
  for (const char* type : {"bf16", "affine4g64", "affine8g64", "q8_0"}) {
    std::mt19937 rng(3);
    std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
    std::vector<ops::LinearPart> parts;
    const Array<float> bias(device, random_floats(250, rng));
    for (const std::uint32_t n_out : kOuts) {
      packed.push_back(*device.pack(StoredWeight(type, n_out, kIn, rng).view(), {}));
      parts.push_back({packed.back().get(), parts.size() == 1 ? bias.data() : nullptr});
    }
    for (const std::uint32_t n_rows : {1u, 5u, 64u}) {
      const Array<float> x(device, random_floats(std::size_t{n_rows} * kIn, rng));
      const Array<float> out(device, std::size_t{n_rows} * kAll);
      const ConstMatView rows = mat_view(x.data(), n_rows, kIn);

      const bool is_done = multiply_wide(device, rows, parts, mat_view(out.data(), n_rows, kAll));

      const Weight& first = matrix_of(packed[0].get()).weight;  // scales of random weights differ
      const bool is_alike = std::all_of(packed.begin(), packed.end(), [&](const auto& other) {
        return matrix_of(other.get()).weight.scale == first.scale;
      });
      ASSERT_EQ(is_done, is_alike) << type;
      if (!is_done) continue;

      const auto got = out.get();
      std::uint32_t column = 0;
      for (std::size_t i = 0; i < parts.size(); column += kOuts[i++]) {
        const auto expected = plain_product(*packed[i], rows, parts[i].bias);
        for (std::uint32_t t = 0; t < n_rows; ++t)
          EXPECT_TRUE(std::memcmp(&got[t * kAll + column], &expected[t * kOuts[i]],
                                  kOuts[i] * sizeof(float)) == 0)
              << type << ", part " << i << " of " << n_rows << " rows";
      }
    }
  }
}

struct Gated {
  const char* type;
  std::uint32_t n_in, ff, hidden;
  ops::Activation activation;
};

// What a step of a gated block and its down projection leaves; the projection takes the copy that
// the activation has rounded.
std::vector<float> gated_block(const Gated& c, std::uint32_t n_rows, bool is_fused, bool is_step) {
  ops::Device& device = cuda_device();
  std::mt19937 rng(c.ff);
  const auto gate = *device.pack(StoredWeight(c.type, c.ff, c.n_in, rng).view(), {}),
             up = *device.pack(StoredWeight(c.type, c.ff, c.n_in, rng).view(), {}),
             down = *device.pack(StoredWeight("bf16", c.hidden, c.ff, rng).view(), {});
  const Array<float> bias(device, random_floats(c.ff, rng)),
      weight(device, random_floats(c.n_in, rng)),
      branch(device, random_floats(std::size_t{n_rows} * c.n_in, rng)),
      x(device, std::size_t{n_rows} * c.n_in), normed(device, std::size_t{n_rows} * c.n_in),
      gate_up(device, std::size_t{n_rows} * 2 * c.ff), out(device, std::size_t{n_rows} * c.hidden);
  const auto stream = random_floats(std::size_t{n_rows} * c.n_in, rng);
  const std::vector<ops::LinearPart> parts{{gate.get(), nullptr}, {up.get(), bias.data()}};
  const MatView both = mat_view(gate_up.data(), n_rows, 2 * c.ff);
  const ops::AddNormArgs norm{.x = mat_view(x.data(), n_rows, c.n_in),
                              .y = mat_view(branch.data(), n_rows, c.n_in),
                              .alpha = 1.0f,
                              .weight = weight.data(),
                              .eps = 1e-5f,
                              .out = mat_view(normed.data(), n_rows, c.n_in)};
  const ops::GatedLinearArgs mlp{.x = mat_view(normed.data(), n_rows, c.n_in),
                                 .parts = parts,
                                 .activation = c.activation,
                                 .gate_up = both};
  for (int round = 0; round < (is_step ? 3 : 1); ++round) {  // kernels, a new graph, the same again
    const_cast<Array<float>&>(x).set(stream);
    if (is_step) device.begin_step(n_rows);
    is_fused ? device.ops().add_norm(device, norm) : ops::add_norm_composed(device, norm);
    is_fused ? device.ops().gated_linear(device, mlp) : ops::gated_linear_composed(device, mlp);
    device.ops().linear(device, {.x = both.columns(0, c.ff),
                                 .weight = down.get(),
                                 .bias = nullptr,
                                 .out = mat_view(out.data(), n_rows, c.hidden)});
    if (is_step) {
      const Status done = device.end_step();
      EXPECT_TRUE(done.has_value()) << done.error().what;
    }
  }
  auto all = out.get();
  const auto mid = gate_up.get(), first = normed.get();
  for (std::uint32_t t = 0; t < n_rows; ++t)
    all.insert(all.end(), mid.begin() + t * 2 * c.ff, mid.begin() + t * 2 * c.ff + c.ff);
  all.insert(all.end(), first.begin(), first.end());
  return all;
}

TEST(CudaWide, AGatedBlockIsItsComposition) {
  KVASIR_NEEDS_CUDA();
  for (const Gated& c : {Gated{"bf16", 256, 1536, 256, ops::Activation::silu},
                         Gated{"bf16", 320, 1000, 96, ops::Activation::gelu_tanh},
                         Gated{"bf16", 128, 7168, 64, ops::Activation::silu},
                         Gated{"affine4g64", 512, 6144, 128, ops::Activation::silu},
                         Gated{"affine4g64", 128, 200, 64, ops::Activation::gelu},
                         Gated{"affine8g64", 256, 1032, 64, ops::Activation::silu},
                         Gated{"q4_0", 256, 24, 64, ops::Activation::silu},
                         Gated{"q8_0", 1024, 3072, 64, ops::Activation::silu},
                         Gated{"affine4g64", 704, 14336, 64, ops::Activation::silu},
                         Gated{"q4_k", 512, 10008, 64, ops::Activation::silu}}) {
    for (const std::uint32_t n_rows : {1u, 3u, 8u, 33u, 64u, 100u}) {
      const auto composed = gated_block(c, n_rows, /*is_fused=*/false, /*is_step=*/false);
      EXPECT_TRUE(same_bits(composed, gated_block(c, n_rows, true, false)))
          << c.type << " " << c.ff << ", " << n_rows << " rows";
      EXPECT_TRUE(same_bits(composed, gated_block(c, n_rows, true, true)))
          << c.type << " " << c.ff << ", " << n_rows << " rows in a step";
    }
  }
}

// Random bf16 rows, made on the device.
std::unique_ptr<CudaMatrix> noise_matrix(CudaDevice& device,
                                         std::uint32_t n_out,
                                         std::uint32_t n_in) {
  auto m = std::make_unique<CudaMatrix>(n_out, n_in);
  const std::size_t n = std::size_t{n_out} * n_in;
  const Array<float> noise(device, n);
  m->data = *device.allocate(n * 2, ops::MemoryKind::device);
  m->weight = {
      m->data.data(),          n_out, n_in, n_in, Code::bf16, ScaleKind::f16, 0, kChunkK, 0,
      codes_bytes(Code::bf16), 0};
  launch_noise(device.queue(), {noise.data(), n});
  launch_convert_rows(device.queue(), {mat_of(ConstMatView(mat_view(noise.data(), n_out, n_in))),
                                       m->data.data(), n_in, 0});
  EXPECT_TRUE(device.synchronize().has_value());
  return m;
}

// Prefill's speed hangs on it: a change of the own kernel's bits, or of the library's, shows here.
TEST(CudaBlas, SomeWayHasTheOwnKernelsBitsForStandardShapes) {
  KVASIR_NEEDS_CUDA();
  const std::unique_ptr<ops::Device> made = *make_cuda_device({});
  CudaDevice& device = cuda_of(*made);
  constexpr std::uint32_t kRows = 4096;
  const Array<float> x(device, std::size_t{kRows} * 14336);
  launch_noise(device.queue(), {x.data(), std::size_t{kRows} * 14336});
  for (const auto& [n_out, n_in] : {std::pair{4096u, 4096u},
                                    {1024u, 4096u},
                                    {14336u, 4096u},
                                    {4096u, 14336u},
                                    {2048u, 1024u},
                                    {3072u, 1024u},
                                    {1024u, 3072u}}) {
    const auto w = noise_matrix(device, n_out, n_in);
    for (const std::uint32_t n_rows : {128u, 512u, 2048u, kRows}) {
      const Array<float> out(device, std::size_t{n_rows} * n_out);
      device.ops().linear(device, {.x = mat_view(x.data(), n_rows, n_in),
                                   .weight = w.get(),
                                   .bias = nullptr,
                                   .out = mat_view(out.data(), n_rows, n_out)});
    }
  }
  ASSERT_TRUE(device.synchronize().has_value());
  if (!device.products().blas().is_there()) GTEST_SKIP() << "no cuBLASLt";
  const auto choices = device.products().blas().choices();
  EXPECT_EQ(choices.size(), 28u);
  for (const Blas::Choice& c : choices)
    EXPECT_TRUE(c.is_used) << c.n_out << " x " << c.k << ", " << c.n_rows << " rows";
}

// A shape that comes often is timed with all ways that the library offers: none changes a bit.
TEST(CudaBlas, TheFastestWayHasTheFirstOnesBits) {
  KVASIR_NEEDS_CUDA();
  const std::unique_ptr<ops::Device> made = *make_cuda_device({});
  CudaDevice& device = cuda_of(*made);
  constexpr std::uint32_t kRows = 640, kOut = 3072, kIn = 1024;
  const auto w = noise_matrix(device, kOut, kIn);
  const Array<float> x(device, std::size_t{kRows} * kIn);
  launch_noise(device.queue(), {x.data(), std::size_t{kRows} * kIn});
  std::vector<float> first;
  for (int i = 0; i < 40; ++i) {
    const Array<float> out(device, std::size_t{kRows} * kOut);
    device.ops().linear(device, {.x = mat_view(x.data(), kRows, kIn),
                                 .weight = w.get(),
                                 .bias = nullptr,
                                 .out = mat_view(out.data(), kRows, kOut)});
    const std::vector<float> got = out.get();
    if (first.empty()) first = got;
    ASSERT_TRUE(same_bits(got, first)) << "run " << i;
  }
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
