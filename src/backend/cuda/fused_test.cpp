// Fused ops give the bits of their compositions (ops/fused.h), as they come and in recorded steps.
#include "ops/fused.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "backend/cuda/testing/device_memory.h"
#include "ops/testing.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

// f() as an eager op, or twice as a step of its own: kernel by kernel, then as a graph.
template <class F>
void run(bool is_step, F&& f) {
  ops::Device& device = cuda_device();
  if (!is_step) return f();
  device.begin_step(1);
  f();
  const Status done = device.end_step();
  ASSERT_TRUE(done.has_value()) << done.error().what;
}

TEST(CudaFused, AddNormIsAnAdditionAndANorm) {
  KVASIR_NEEDS_CUDA();
  ops::Device& device = cuda_device();
  for (const std::uint32_t n : {5u, 64u, 512u, 576u, 2048u, 4096u, 8192u}) {
    for (const std::uint32_t n_rows : {1u, 3u, 70u}) {
      std::mt19937 rng(n + n_rows);
      const auto x = random_floats(std::size_t{n_rows} * n, rng),
                 y = random_floats(std::size_t{n_rows} * n, rng), w = random_floats(n, rng);
      const Array<float> added(device, y), weight(device, w);
      std::vector<float> sums[2], outs[2];
      for (const bool is_fused : {false, true}) {
        const Array<float> sum(device, x), out(device, x.size());
        const ops::AddNormArgs args{.x = mat_view(sum.data(), n_rows, n),
                                    .y = mat_view(added.data(), n_rows, n),
                                    .alpha = 0.7f,
                                    .weight = weight.data(),
                                    .eps = 1e-5f,
                                    .out = mat_view(out.data(), n_rows, n)};
        run(is_fused, [&] {
          is_fused ? device.ops().add_norm(device, args) : ops::add_norm_composed(device, args);
        });
        sums[is_fused] = sum.get();
        outs[is_fused] = out.get();
      }
      EXPECT_TRUE(same_bits(sums[0], sums[1])) << n << " columns, " << n_rows << " rows";
      EXPECT_TRUE(same_bits(outs[0], outs[1])) << n << " columns, " << n_rows << " rows";
    }
  }
}

struct HeadsCase {
  std::uint32_t head_dim, n_heads, n_kv_heads, n_pairs;
  bool interleaved, has_norms;
  DType type;
};

// Two rows, the second one further on, in blocks of 8.
struct Step {
  static constexpr std::uint32_t kBlock = 8, kBlocks = 12, kTokens = 5;
  std::vector<BlockId> first{{3}, {1}}, second{{7}, {2}, {9}, {11}};
  std::vector<KvRowView> rows{
      {.blocks = first.data(), .length = 6, .n_new = 4, .first_token = 0},
      {.blocks = second.data(), .length = 25, .n_new = 1, .first_token = 4}};
  std::vector<std::uint32_t> positions{6, 7, 8, 9, 25};
};

// Queries, keys and both planes after query_key.
std::vector<std::vector<float>> query_key_of(const HeadsCase& c, bool is_fused) {
  ops::Device& device = cuda_device();
  const Step step;
  std::mt19937 rng(c.head_dim);
  const std::uint32_t q_width = c.n_heads * c.head_dim, kv_width = c.n_kv_heads * c.head_dim,
                      width = q_width + 2 * kv_width;
  const Array<float> qkv(device, random_floats(std::size_t{Step::kTokens} * width, rng)),
      q_norm(device, random_floats(c.head_dim, rng)),
      k_norm(device, random_floats(c.head_dim, rng)),
      cos(device, random_floats(std::size_t{32} * c.n_pairs, rng)),
      sin(device, random_floats(std::size_t{32} * c.n_pairs, rng));
  const std::size_t n_plane =
      std::size_t{Step::kBlocks} * Step::kBlock * kv_width * size_of(c.type) / sizeof(float);
  const Array<float> keys(device, n_plane), values(device, n_plane);
  const MatView all = mat_view(qkv.data(), Step::kTokens, width);
  const ops::QueryKeyArgs args{.q = all.columns(0, q_width),
                               .k = all.columns(q_width, kv_width),
                               .v = all.columns(q_width + kv_width, kv_width),
                               .q_norm = c.has_norms ? q_norm.data() : nullptr,
                               .k_norm = c.has_norms ? k_norm.data() : nullptr,
                               .q_group = c.head_dim,
                               .k_group = c.head_dim,
                               .eps = 1e-6f,
                               .head_dim = c.head_dim,
                               .n_pairs = c.n_pairs,
                               .interleaved = c.interleaved,
                               .positions = step.positions,
                               .cos = cos.data(),
                               .sin = sin.data(),
                               .kv = {.k = reinterpret_cast<std::byte*>(keys.data()),
                                      .v = reinterpret_cast<std::byte*>(values.data()),
                                      .type = c.type,
                                      .n_kv_heads = c.n_kv_heads,
                                      .head_dim = c.head_dim,
                                      .block_tokens = Step::kBlock,
                                      .window = 0,
                                      .rows = step.rows,
                                      .k_encoded = {},
                                      .v_encoded = {}}};
  run(is_fused, [&] {
    is_fused ? device.ops().query_key(device, args) : ops::query_key_composed(device, args);
  });
  return {qkv.get(), keys.get(), values.get()};
}

TEST(CudaFused, QueryKeyIsNormsRopesAndAnAppend) {
  KVASIR_NEEDS_CUDA();
  for (const HeadsCase& c : {HeadsCase{128, 4, 2, 64, false, true, DType::bf16},
                             HeadsCase{64, 9, 3, 32, true, false, DType::f32},
                             HeadsCase{80, 4, 4, 20, false, true, DType::f16},
                             HeadsCase{256, 2, 1, 128, false, true, DType::bf16},
                             HeadsCase{64, 2, 2, 0, false, true, DType::bf16}}) {
    const auto composed = query_key_of(c, false), fused = query_key_of(c, true);
    for (std::size_t i = 0; i < composed.size(); ++i)
      EXPECT_TRUE(same_bits(composed[i], fused[i])) << "heads of " << c.head_dim << ", part " << i;
  }
}

struct FreshCase {
  std::uint32_t head_dim, n_heads, n_kv_heads, n_pairs;
  bool has_norms;
  std::uint32_t block_tokens, window;
  bool has_sinks;
  std::vector<std::uint32_t> lengths;  // of rows, each of which then gets one token more
};

// Attention's output and both planes after a step of one token a row.
std::vector<std::vector<float>> fresh_of(const FreshCase& c, bool is_fused) {
  ops::Device& device = cuda_device();
  std::mt19937 rng(c.head_dim + c.window);
  const std::uint32_t q_width = c.n_heads * c.head_dim, kv_width = c.n_kv_heads * c.head_dim,
                      width = q_width + 2 * kv_width;
  std::vector<std::vector<BlockId>> tables;
  std::vector<KvRowView> before, rows;
  std::vector<std::uint32_t> positions_before, positions;
  std::uint32_t n_blocks = 0, n_tokens = 0;
  for (const std::uint32_t length : c.lengths) {
    auto& table = tables.emplace_back();
    for (std::uint32_t b = 0; b <= length / c.block_tokens; ++b) table.push_back({n_blocks++});
    std::shuffle(table.begin(), table.end(), rng);
    before.push_back({.blocks = nullptr, .length = 0, .n_new = length, .first_token = n_tokens});
    rows.push_back({.blocks = nullptr,
                    .length = length,
                    .n_new = 1,
                    .first_token = static_cast<std::uint32_t>(positions.size())});
    for (std::uint32_t p = 0; p < length; ++p) positions_before.push_back(p);
    positions.push_back(length);
    n_tokens += length;
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    before[i].blocks = rows[i].blocks = tables[i].data();
  const std::size_t kPositions = *std::max_element(c.lengths.begin(), c.lengths.end()) + 1;
  const std::vector<float> pool = random_floats(999983, rng);  // a prime
  const auto floats = [&](std::size_t n) {
    std::vector<float> out(n);
    const std::size_t from = rng();
    for (std::size_t i = 0; i < n; ++i) out[i] = pool[(from + i) % pool.size()];
    return Array<float>(device, out);
  };
  const Array<float> old = floats(std::size_t{n_tokens} * width), qkv = floats(rows.size() * width),
                     q_norm = floats(c.head_dim), k_norm = floats(c.head_dim),
                     cos = floats(kPositions * c.n_pairs), sin = floats(kPositions * c.n_pairs),
                     sinks = floats(c.n_heads);
  const std::size_t n_plane = std::size_t{n_blocks} * c.block_tokens * kv_width / 2;
  const Array<float> keys(device, n_plane), values(device, n_plane),
      out(device, rows.size() * q_width);
  const auto args_of = [&](const Array<float>& from, std::span<const KvRowView> of,
                           std::span<const std::uint32_t> at) {
    const MatView all = mat_view(from.data(), static_cast<std::uint32_t>(at.size()), width);
    return ops::QueryKeyArgs{.q = all.columns(0, q_width),
                             .k = all.columns(q_width, kv_width),
                             .v = all.columns(q_width + kv_width, kv_width),
                             .q_norm = c.has_norms ? q_norm.data() : nullptr,
                             .k_norm = c.has_norms ? k_norm.data() : nullptr,
                             .q_group = c.head_dim,
                             .k_group = c.head_dim,
                             .eps = 1e-6f,
                             .head_dim = c.head_dim,
                             .n_pairs = c.n_pairs,
                             .interleaved = false,
                             .positions = at,
                             .cos = cos.data(),
                             .sin = sin.data(),
                             .kv = {.k = reinterpret_cast<std::byte*>(keys.data()),
                                    .v = reinterpret_cast<std::byte*>(values.data()),
                                    .type = DType::bf16,
                                    .n_kv_heads = c.n_kv_heads,
                                    .head_dim = c.head_dim,
                                    .block_tokens = c.block_tokens,
                                    .window = c.window,
                                    .rows = of,
                                    .k_encoded = {},
                                    .v_encoded = {}}};
  };
  device.ops().query_key(device, args_of(old, before, positions_before));
  const ops::QueryKeyArgs prepare = args_of(qkv, rows, positions);
  const ops::PreparedAttentionArgs args{
      .prepare = prepare,
      .attend = {.q = prepare.q,
                 .kv = prepare.kv,
                 .n_heads = c.n_heads,
                 .scale = 0.1f,
                 .softcap = 0.0f,
                 .sinks = c.has_sinks ? sinks.data() : nullptr,
                 .out = mat_view(out.data(), static_cast<std::uint32_t>(rows.size()), q_width)}};
  run(is_fused, [&] {
    is_fused ? device.ops().prepared_attention(device, args)
             : ops::prepared_attention_composed(device, args);
  });
  return {out.get(), keys.get(), values.get()};
}

// Rows that begin, that end a segment and begin one, of several segments, of more than a block
// each; blocks small and large.
TEST(CudaFused, PreparedAttentionIsQueryKeyAndAttention) {
  KVASIR_NEEDS_CUDA();
  for (const FreshCase& c : {FreshCase{128, 16, 8, 64, true, 64, 0, false, {100}},
                             FreshCase{128, 8, 2, 64, false, 16, 0, false, {255, 256, 0, 63}},
                             FreshCase{64, 9, 3, 32, false, 8, 0, true, {300, 5}},
                             FreshCase{128, 16, 2, 0, true, 256, 0, false, {700}},
                             FreshCase{64, 8, 8, 32, true, 32, 90, true, {700, 1000, 40}},
                             FreshCase{128, 4, 4, 64, false, 64, 300, false, {511, 512, 1200}},
                             FreshCase{64, 12, 1, 32, false, 64, 0, false, {70}},
                             FreshCase{128, 32, 8, 64, false, 64, 0, false, {2047}},
                             FreshCase{128, 32, 8, 64, true, 64, 0, true, {2300, 2048}},
                             FreshCase{128, 16, 8, 64, true, 16, 0, false, {4095}},
                             FreshCase{128, 32, 4, 64, false, 64, 0, false, {4096}},
                             FreshCase{64, 12, 4, 32, true, 128, 0, true, {4500, 1, 700, 3000}},
                             FreshCase{64, 24, 8, 32, false, 32, 3000, true, {5000, 256}},
                             FreshCase{64, 7, 7, 32, false, 64, 0, false, {33000}},
                             FreshCase{128, 3, 3, 0, false, 64, 0, false, {17000}},
                             FreshCase{64,
                                       8,
                                       8,
                                       32,
                                       false,
                                       64,
                                       0,
                                       false,
                                       {1100, 1300, 2000, 900, 5, 1792, 1791, 257, 1024, 1025, 600,
                                        40, 512, 511, 2047, 1500}},
                             FreshCase{96, 4, 2, 48, true, 64, 0, false, {70}}}) {
    const auto composed = fresh_of(c, false), fused = fresh_of(c, true);
    for (std::size_t i = 0; i < composed.size(); ++i)
      EXPECT_TRUE(same_bits(composed[i], fused[i]))
          << c.n_heads << " heads of " << c.head_dim << " of " << c.lengths.size() << " rows, part "
          << i;
  }
}

// Spans of the same address and size in one step are told apart by what stands there.
TEST(CudaFused, AStepSeesWhatASpanHoldsNow) {
  KVASIR_NEEDS_CUDA();
  ops::Device& device = cuda_device();
  constexpr std::uint32_t kRows = 4, kCols = 8;
  std::mt19937 rng(1);
  const auto values = random_floats(kRows * kCols, rng);
  const Array<float> x(device, values), first(device, kCols), second(device, kCols);
  std::uint32_t row = 1;
  const std::span<const std::uint32_t> rows(&row, 1);
  run(true, [&] {
    const ConstMatView from = mat_view(x.data(), kRows, kCols);
    device.ops().gather_rows(device,
                             {.x = from, .rows = rows, .out = mat_view(first.data(), 1, kCols)});
    row = 3;
    device.ops().gather_rows(device,
                             {.x = from, .rows = rows, .out = mat_view(second.data(), 1, kCols)});
  });
  EXPECT_EQ(first.get(), std::vector<float>(values.begin() + kCols, values.begin() + 2 * kCols));
  EXPECT_EQ(second.get(), std::vector<float>(values.begin() + 3 * kCols, values.end()));
}

TEST(CudaFused, PartsOfOneShapeAreMultipliedAsAlone) {
  KVASIR_NEEDS_CUDA();
  ops::Device& device = cuda_device();
  constexpr std::uint32_t kIn = 256;
  for (const char* type : {"bf16", "affine4g64", "q8_0", "f32"}) {
    std::mt19937 rng(3);
    std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
    for (const std::uint32_t n_out : {96u, 48u, 48u, 80u})
      packed.push_back(*device.pack(StoredWeight(type, n_out, kIn, rng).view(), {}));
    const Array<float> bias(device, random_floats(48, rng));
    const std::vector<ops::LinearPart> parts{{packed[0].get(), nullptr},
                                             {packed[1].get(), nullptr},
                                             {packed[2].get(), bias.data()},
                                             {packed[3].get(), nullptr}};
    for (const std::uint32_t n_rows : {1u, 2u, 8u, 9u, 40u}) {
      const Array<float> x(device, random_floats(std::size_t{n_rows} * kIn, rng));
      std::vector<float> outs[2];
      for (const bool is_fused : {false, true}) {
        const Array<float> out(device, std::size_t{n_rows} * 272);
        const ops::LinearGroupArgs args{.x = mat_view(x.data(), n_rows, kIn),
                                        .parts = parts,
                                        .out = mat_view(out.data(), n_rows, 272)};
        run(is_fused, [&] {
          is_fused ? device.ops().linear_group(device, args)
                   : ops::linear_group_composed(device, args);
        });
        outs[is_fused] = out.get();
      }
      EXPECT_TRUE(same_bits(outs[0], outs[1])) << type << ", " << n_rows << " rows";
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
