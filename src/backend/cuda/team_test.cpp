// Several GPUs as one device give the bits of one. Where a machine has one GPU alone, two members
// share it: the same kernels meet through the same flags.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "backend/cuda/testing/device_memory.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

constexpr ops::PackOptions kMaySplit{.may_split = true};

ops::Device& team() {
  static const std::unique_ptr<ops::Device> device = [] {
    auto apart = make_cuda_device({.ordinals = {0, 1}});
    return apart ? *std::move(apart) : *make_cuda_device({.ordinals = {0, 0}});
  }();
  return *device;
}

using Numbers = std::vector<float>;

// What a scenario gives on one GPU and on a team.
void expect_same(const std::function<Numbers(ops::Device&)>& scenario) {
  const Numbers alone = scenario(cuda_device()), together = scenario(team());
  ASSERT_EQ(alone.size(), together.size());
  EXPECT_TRUE(same_bits(alone, together));
}

class CudaTeam : public ::testing::Test {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  std::mt19937 rng_{11};
};

MatView view(const Array<float>& m, std::uint32_t n_rows, std::uint32_t n_cols) {
  return mat_view(m.data(), n_rows, n_cols);
}

TEST_F(CudaTeam, ProductsHaveTheBitsOfOneGpu) {
  for (const char* type : {"bf16", "q4_0", "affine4_64", "q8_0"}) {
    if (!codec::find_weight_type(type)) continue;
    for (const std::uint32_t n_out : {96u, 80u}) {  // 80: not divided
      const StoredWeight stored(type, n_out, 256, rng_);
      const Numbers bias = random_floats(n_out, rng_);
      for (const std::uint32_t n_rows : {1u, 9u, 100u}) {
        const Numbers x = random_floats(std::size_t{n_rows} * 256, rng_);
        SCOPED_TRACE(std::string(type) + ", " + std::to_string(n_out) + " outputs, " +
                     std::to_string(n_rows) + " rows");
        expect_same([&](ops::Device& device) {
          const auto w = *device.pack(stored.view(), kMaySplit);
          const Array<float> in(device, x), b(device, bias);
          const Array<float> out(device, std::size_t{n_rows} * n_out);
          device.ops().linear(device, {.x = view(in, n_rows, 256),
                                       .weight = w.get(),
                                       .bias = b.data(),
                                       .out = view(out, n_rows, n_out)});
          return out.get();
        });
      }
    }
  }
}

TEST_F(CudaTeam, GatedBlocksHaveTheBitsOfOneGpu) {
  constexpr std::uint32_t kFf = 96, kIn = 128;
  const StoredWeight gate("bf16", kFf, kIn, rng_), up("bf16", kFf, kIn, rng_);
  const Numbers bias = random_floats(kFf, rng_);
  for (const std::uint32_t n_rows : {1u, 12u, 80u}) {
    const Numbers x = random_floats(std::size_t{n_rows} * kIn, rng_);
    expect_same([&](ops::Device& device) {
      const auto g = *device.pack(gate.view(), kMaySplit), u = *device.pack(up.view(), kMaySplit);
      const Array<float> in(device, x), b(device, bias);
      const Array<float> out(device, std::size_t{n_rows} * 2 * kFf);
      const std::vector<ops::LinearPart> parts{{g.get(), b.data()}, {u.get(), nullptr}};
      device.ops().gated_linear(
          device,
          {.x = view(in, n_rows, kIn), .parts = parts, .gate_up = view(out, n_rows, 2 * kFf)});
      Numbers whole = out.get(), result;
      for (std::uint32_t r = 0; r < n_rows; ++r)  // the second half is left open
        result.insert(result.end(), whole.begin() + r * 2 * kFf, whole.begin() + (r * 2 + 1) * kFf);
      return result;
    });
  }
}

TEST_F(CudaTeam, ColumnsThatMembersKeepAreWholeForWhoeverReadsThem) {
  constexpr std::uint32_t kOut = 64, kIn = 128, kRows = 5;
  const StoredWeight a("bf16", kOut, kIn, rng_), b("bf16", kOut, kIn, rng_);
  const Numbers x = random_floats(std::size_t{kRows} * kIn, rng_), ones(2 * kOut, 1.0f);
  expect_same([&](ops::Device& device) {
    const auto wa = *device.pack(a.view(), kMaySplit), wb = *device.pack(b.view(), kMaySplit);
    const Array<float> in(device, x), weight(device, ones);
    const Array<float> both(device, std::size_t{kRows} * 2 * kOut);
    const Array<float> out(device, std::size_t{kRows} * 2 * kOut);
    const std::vector<ops::LinearPart> parts{{wa.get(), nullptr}, {wb.get(), nullptr}};
    device.ops().linear_group(
        device, {.x = view(in, kRows, kIn), .parts = parts, .out = view(both, kRows, 2 * kOut)});
    device.ops().rms_norm(device, {.x = view(both, kRows, 2 * kOut),
                                   .weight = weight.data(),
                                   .group = 2 * kOut,
                                   .eps = 1e-6f,
                                   .out = view(out, kRows, 2 * kOut)});
    return out.get();
  });
}

// A layer's queries, keys and values and its attention; planes that may be divided by heads.
class Layer {
 public:
  static constexpr std::uint32_t kHeads = 4, kKvHeads = 2, kDim = 64, kBlock = 16, kBlocks = 12;
  static constexpr std::uint32_t kWidth = (kHeads + 2 * kKvHeads) * kDim, kIn = 128;
  static constexpr std::size_t kPlane = std::size_t{kBlock} * kKvHeads * kDim * 2;

  Layer(ops::Device& device, const std::vector<const StoredWeight*>& stored)
      : device_(device),
        k_(*device.allocate_blocks(kBlocks, kPlane, kKvHeads)),
        v_(*device.allocate_blocks(kBlocks, kPlane, kKvHeads)),
        norm_(device, Numbers(kDim, 1.25f)),
        angles_(device, Numbers(256 * kDim / 2, 0.6f)) {
    for (const StoredWeight* w : stored) weights_.push_back(*device.pack(w->view(), kMaySplit));
    for (const auto& w : weights_) parts_.push_back({w.get(), nullptr});
  }

  // Feeds n tokens a row to two rows of that length; what attention says.
  Numbers step(const Numbers& x, std::uint32_t length, std::uint32_t n) {
    const Array<float> in(device_, x), qkv(device_, std::size_t{2} * n * kWidth);
    const Array<float> out(device_, std::size_t{2} * n * kHeads * kDim);
    const std::vector<KvRowView> rows{
        {.blocks = blocks_.data(), .length = length, .n_new = n, .first_token = 0},
        {.blocks = blocks_.data() + kBlocks / 2, .length = length, .n_new = n, .first_token = n}};
    std::vector<std::uint32_t> positions(2 * n);
    for (std::uint32_t i = 0; i < n; ++i) positions[i] = positions[n + i] = length + i;
    device_.begin_step(2 * n);
    feed(view(in, 2 * n, kIn), view(qkv, 2 * n, kWidth), kv(rows), positions,
         view(out, 2 * n, kHeads * kDim));
    EXPECT_TRUE(device_.end_step().has_value());
    return out.get();
  }
  std::byte* keys() const { return k_.data(); }

 private:
  KvLayerView kv(std::span<const KvRowView> rows) const {
    return {.k = k_.data(),
            .v = v_.data(),
            .type = DType::bf16,
            .n_kv_heads = kKvHeads,
            .head_dim = kDim,
            .block_tokens = kBlock,
            .rows = rows};
  }
  void feed(MatView x,
            MatView qkv,
            const KvLayerView& kv,
            std::span<const std::uint32_t> positions,
            MatView out) {
    const ops::OpTable& ops = device_.ops();
    ops.linear_group(device_, {.x = x, .parts = parts_, .out = qkv});
    const MatView q = qkv.columns(0, kHeads * kDim);
    ops.query_key(device_, {.q = q,
                            .k = qkv.columns(kHeads * kDim, kKvHeads * kDim),
                            .v = qkv.columns((kHeads + kKvHeads) * kDim, kKvHeads * kDim),
                            .q_norm = norm_.data(),
                            .k_norm = norm_.data(),
                            .q_group = kDim,
                            .k_group = kDim,
                            .eps = 1e-6f,
                            .head_dim = kDim,
                            .n_pairs = kDim / 2,
                            .positions = positions,
                            .cos = angles_.data(),
                            .sin = angles_.data(),
                            .kv = kv});
    ops.attention(device_, {.q = q, .kv = kv, .n_heads = kHeads, .scale = 0.125f, .out = out});
  }

  ops::Device& device_;
  Buffer k_, v_;
  Array<float> norm_, angles_;
  std::vector<std::unique_ptr<ops::PackedMatrix>> weights_;
  std::vector<ops::LinearPart> parts_;
  std::vector<BlockId> blocks_ = [] {
    std::vector<BlockId> out;
    for (std::uint32_t i = 0; i < kBlocks; ++i) out.push_back(BlockId{(i * 5 + 3) % kBlocks});
    return out;
  }();
};

TEST_F(CudaTeam, AttentionByHeadsHasTheBitsOfOneGpu) {
  const StoredWeight q("bf16", Layer::kHeads * Layer::kDim, Layer::kIn, rng_),
      k("bf16", Layer::kKvHeads * Layer::kDim, Layer::kIn, rng_),
      v("bf16", Layer::kKvHeads * Layer::kDim, Layer::kIn, rng_);
  const StoredWeight fused("bf16", Layer::kWidth, Layer::kIn, rng_);  // its halves are no heads
  std::vector<Numbers> inputs;
  for (const std::uint32_t n : {40u, 1u, 1u, 1u, 3u})
    inputs.push_back(random_floats(std::size_t{2} * n * Layer::kIn, rng_));
  for (const auto& stored :
       {std::vector<const StoredWeight*>{&q, &k, &v}, std::vector<const StoredWeight*>{&fused}}) {
    expect_same([&](ops::Device& device) {
      Layer layer(device, stored);
      Numbers out;
      std::uint32_t length = 0;
      for (const Numbers& x : inputs) {  // equal steps become graphs
        const auto n = static_cast<std::uint32_t>(x.size() / 2 / Layer::kIn);
        const Numbers step = layer.step(x, length, n);
        out.insert(out.end(), step.begin(), step.end());
        length += n;
      }
      return out;
    });
  }
}

TEST_F(CudaTeam, CopiesOfDividedBlocksAreThoseOfWholeOnes) {
  constexpr std::size_t kBlockBytes = 256, kBlocks = 5, kHeads = 4;
  Numbers values(kBlocks * kBlockBytes / 4);
  std::iota(values.begin(), values.end(), 1.0f);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  expect_same([&](ops::Device& device) {
    const Buffer planes = *device.allocate_blocks(kBlocks, kBlockBytes, kHeads);
    const Buffer others = *device.allocate_blocks(kBlocks, kBlockBytes, kHeads);
    const Array<float> image(device, values.size());
    auto* const at = reinterpret_cast<std::byte*>(image.data());
    device.copy(planes.data(), bytes, values.size() * 4);              // host → blocks
    device.copy(others.data(), planes.data() + 2 * kBlockBytes, 600);  // blocks → blocks
    device.copy(at, others.data() + 24, 520);                          // blocks → whole
    device.copy(planes.data() + kBlockBytes + 100, at + 8, 400);       // whole → blocks
    device.copy(at + 600, planes.data(), values.size() * 4 - 600);
    Numbers out = image.get(), back(values.size());
    device.copy(reinterpret_cast<std::byte*>(back.data()), planes.data(), values.size() * 4);
    EXPECT_TRUE(device.synchronize().has_value());
    out.insert(out.end(), back.begin(), back.end());
    return out;
  });
}

TEST_F(CudaTeam, RefusesMoreMembersThanThereCanBe) {
  EXPECT_FALSE(make_cuda_device({.ordinals = {}}).has_value());
  EXPECT_FALSE(make_cuda_device({.ordinals = std::vector<int>(9, 0)}).has_value());
  EXPECT_FALSE(make_cuda_device({.ordinals = {0, 4711}}).has_value());
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
