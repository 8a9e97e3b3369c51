// Attention over exact and encoded rows: within the bound of docs/numerics.md of the oracle,
// planted faults beyond it, and a query's bits independent of blocks, chunks, other rows, of which
// kernel serves it, and of graphs.
#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"

namespace kvasir::backend::cuda::testing {
namespace {

using namespace ops::testing;

struct Named {
  std::string name;
  AttentionCase c;
};

codec::ScaleType scale_type_of(DType type) {
  return type == DType::f32   ? codec::ScaleType::f32
         : type == DType::f16 ? codec::ScaleType::f16
                              : codec::ScaleType::bf16;
}

std::vector<Named> exact_cases() {
  return {
      {"bf16", {}},
      {"long", {.lengths = {700}}},
      {"f32", {.type = DType::f32, .lengths = {300}}},
      {"f16", {.type = DType::f16}},
      {"f16_odd_shape", {.n_heads = 3, .n_kv_heads = 3, .head_dim = 24, .type = DType::f16}},
      {"bf16_odd_shape", {.n_heads = 3, .n_kv_heads = 3, .head_dim = 40, .lengths = {300}}},
      {"window", {.window = 40, .lengths = {170}}},
      {"window_beyond_segments", {.window = 300, .lengths = {900}}},
      {"window_f32", {.window = 100, .type = DType::f32, .lengths = {300}}},
      {"softcap", {.softcap = 2.0f, .lengths = {300}}},
      {"sinks", {.window = 70, .sinks = true}},
      {"sinks_of_segments", {.sinks = true, .lengths = {520}}},
      {"one_query_head_a_key_head", {.n_heads = 2, .head_dim = 80}},
      {"five_query_heads_a_key_head", {.n_heads = 10, .head_dim = 128, .lengths = {300}}},
      {"wide_heads", {.n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .lengths = {300}}},
      {"wider_than_tensor_cores",
       {.n_heads = 2, .n_kv_heads = 1, .head_dim = 512, .lengths = {90}}},
      {"narrow_heads", {.n_heads = 8, .n_kv_heads = 1, .head_dim = 8}},
      {"many_query_heads", {.n_heads = 40, .n_kv_heads = 1, .head_dim = 64, .lengths = {70}}},
      {"three_rows", {.lengths = {70, 3, 300}}},
      {"both_ways", {.lengths = {70, 3, 129}, .both_ways = true}},
      {"both_ways_f32", {.type = DType::f32, .lengths = {64, 200}, .both_ways = true}},
      {"both_ways_window", {.window = 9, .lengths = {37, 400, 1}, .both_ways = true}},
  };
}

// Every pair of codecs on a few shapes.
std::vector<Named> encoded_cases() {
  const Named shapes[] = {
      {"d64", {.n_heads = 6, .head_dim = 64, .lengths = {270}}},
      {"d128_window", {.n_heads = 4, .head_dim = 128, .window = 90, .lengths = {130, 300}}},
      {"d96_softcap_sinks",
       {.n_heads = 4, .head_dim = 96, .softcap = 2.0f, .sinks = true, .lengths = {80}}},
      {"d256", {.n_heads = 5, .n_kv_heads = 1, .head_dim = 256, .lengths = {67}}},
      {"d512", {.n_heads = 1, .n_kv_heads = 1, .head_dim = 512, .lengths = {66}}},
      {"d128_f32", {.n_heads = 2, .head_dim = 128, .type = DType::f32, .lengths = {129}}},
      {"d64_exact_beside",
       {.n_heads = 4, .head_dim = 64, .lengths = {70, 40, 66}, .exact_rows = 2}},
  };
  std::vector<Named> out;
  for (const Named& shape : shapes) {
    for (const auto& pair : codec::paired_kv_codecs(scale_type_of(shape.c.type))) {
      if (!codec::can_store(pair.k, shape.c.head_dim) ||
          !codec::can_store(pair.v, shape.c.head_dim))
        continue;
      Named one = shape;
      one.name += "_" + codec::signature_part(pair.k) + "_" + codec::signature_part(pair.v);
      std::replace(one.name.begin(), one.name.end(), ':', '_');
      one.c.k_codec = pair.k, one.c.v_codec = pair.v;
      out.push_back(one);
    }
  }
  return out;
}

class CudaAttention : public ::testing::TestWithParam<Named> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  bool is_encoded() const { return !GetParam().c.k_codec.is_exact(); }
  // bf16 operands: q, p and elements; the elements of encoded rows at the scale of a row's range.
  double bound() const {
    if (GetParam().c.type != DType::bf16) return is_encoded() ? 1e-5 : 4e-6;
    return is_encoded() ? 6e-2 : 4e-2;
  }
  std::mt19937 rng_{5};
  Activations in_ = draw(GetParam().c, rng_);
};

const auto name_of = [](const auto& i) { return i.param.name; };
INSTANTIATE_TEST_SUITE_P(Exact, CudaAttention, ::testing::ValuesIn(exact_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Encoded, CudaAttention, ::testing::ValuesIn(encoded_cases()), name_of);

TEST_P(CudaAttention, IsCloseToTheOracleAndFaultsAreNot) {
  const AttentionCase& c = GetParam().c;
  KvLayer on_cuda(c, 1024), on_oracle(c, 1024);
  const auto expected = attend_all(*make_oracle(), c, in_, on_oracle);

  EXPECT_LE(worst_difference(attend_all(*make(), c, in_, on_cuda), expected), bound());
  EXPECT_EQ(on_cuda.planes(), on_oracle.planes());

  Activations wrong = in_;  // planted: keys one position late
  const std::ptrdiff_t width = c.n_kv_heads * c.head_dim;
  std::rotate(wrong.k.rbegin(), wrong.k.rbegin() + width, wrong.k.rend());
  EXPECT_GT(worst_difference(attend_all(*make(), c, wrong), expected), 2 * bound());
  AttentionCase other = c;  // planted: a window one key short
  other.window = c.window == 0 ? 30 : c.window - 1;
  EXPECT_GT(worst_difference(attend_all(*make(), other, in_), expected), 1e-4);
}

TEST_P(CudaAttention, BitsDoNotDependOnBlocksChunksOrRecordedSteps) {
  const auto expected = attend_all(*make(), GetParam().c, in_);
  const std::tuple<std::uint32_t, std::uint32_t, Mode> variants[] = {{64, 1, Mode::recorded},
                                                                     {8, 7, Mode::eager},
                                                                     {256, 33, Mode::eager},
                                                                     {512, 0, Mode::recorded}};
  for (const auto& [block, chunk, how] : variants) {
    if (GetParam().c.both_ways && chunk != 0) continue;  // rows are whole
    AttentionCase c = GetParam().c;
    c.block_tokens = block, c.chunk = chunk;
    EXPECT_TRUE(same_bits(attend_all(*make(how), c, in_), expected))
        << "blocks of " << block << ", chunks of " << chunk;
  }
}

TEST(CudaAttentionRows, DoNotTouchEachOther) {
  KVASIR_NEEDS_CUDA();
  const AttentionCase both{.lengths = {70, 90}}, first{.lengths = {70}};
  std::mt19937 rng(9);
  Activations in = draw(both, rng);
  const auto clean = attend_all(*make(), both, in);
  EXPECT_EQ(std::memcmp(attend_all(*make(), first, in).data(), clean.data(),
                        70 * std::size_t{6} * 64 * sizeof(float)),
            0);
  in.k[(70 + 5) * 2 * 64] = std::nanf("");  // a key of the second row

  const auto got = attend_all(*make(), both, in);

  EXPECT_EQ(std::memcmp(got.data(), clean.data(), (70 + 5) * std::size_t{6} * 64 * sizeof(float)),
            0);
  EXPECT_TRUE(std::isnan(got[(70 + 5) * std::size_t{6} * 64]));
  EXPECT_TRUE(std::isnan(got[159 * std::size_t{6} * 64]));
}

// Affine groups whose scales and offsets are such that decode takes their codes in one way or
// another; prefill does not.
TEST(CudaAttentionRows, OfAnyScaleHaveThePrefillsBits) {
  KVASIR_NEEDS_CUDA();
  const std::pair<const char*, float (*)(float, std::size_t)> changes[] = {
      {"as drawn", [](float x, std::size_t) { return x; }},
      {"small offsets",
       [](float x, std::size_t i) {
         return i % 64 == 7 && i / 64 % 3 == 0 ? 1.3e-4f : 0.05f + std::abs(x);
       }},
      {"large scales", [](float x, std::size_t i) { return i % 7 == 0 ? 300.0f * x : x; }},
      {"larger scales", [](float x, std::size_t i) { return i / 640 % 2 ? 3e5f * x : x; }},
      {"small scales", [](float x, std::size_t i) { return i / 640 % 2 ? 1e-35f * x : x; }},
      {"nearly constant",
       [](float x, std::size_t i) { return i / 640 % 2 ? 100.0f + 1e-3f * x : 100.0f; }},
      {"zeros", [](float x, std::size_t i) { return i / 64 % 3 ? x : 0.0f; }}};
  for (const auto& [dim, bits] : {std::pair{64u, 8u}, std::pair{128u, 8u}, std::pair{128u, 4u}}) {
    for (const auto& [name, change] : changes) {
      const codec::KvCodec affine = codec::affine_kv(bits, 64, codec::ScaleType::bf16);
      AttentionCase c{
          .n_heads = 4, .head_dim = dim, .lengths = {330}, .k_codec = affine, .v_codec = affine};
      std::mt19937 rng(13);
      Activations in = draw(c, rng);
      for (std::vector<float>* side : {&in.k, &in.v}) {
        for (std::size_t i = 0; i < side->size(); ++i) (*side)[i] = change((*side)[i], i);
      }
      if (name == changes[0].first) in.q[in.q.size() / 2] = 1e37f;
      const auto expected = attend_all(*make(), c, in);
      c.chunk = 1;

      EXPECT_TRUE(same_bits(attend_all(*make(), c, in), expected))
          << "head_dim " << dim << ", " << bits << " bits, " << name;
    }
  }
}

// A growing row, decoded in recorded steps that become graphs, beside the same steps run at once.
TEST(CudaAttentionGraphs, GiveTheBitsOfEagerSteps_EXE48) {
  KVASIR_NEEDS_CUDA();
  const AttentionCase c{.n_heads = 8, .n_kv_heads = 2, .head_dim = 128, .lengths = {600, 90}};
  std::mt19937 rng(11);
  const Activations in = draw(c, rng);
  const auto eager = make();
  ops::Device& device = cuda_device();
  KvLayer layers[2] = {KvLayer(c, 700), KvLayer(c, 700)};
  std::vector<float> q(2 * 8 * 128), k(2 * 2 * 128), v(k), outs[2] = {q, q};
  for (std::uint32_t step = 0; step < 40; ++step) {
    q = random_floats(q.size(), rng), k = random_floats(k.size(), rng);
    v = random_floats(v.size(), rng);
    for (const bool is_eager : {false, true}) {
      KvLayer& layer = layers[is_eager];
      ops::Device& d = is_eager ? *eager : device;
      const KvRowView rows[] = {{layer.table(0), 0, 220 + step, 1, 0, false},
                                {layer.table(1), 0, step, 1, 1, false}};
      const KvLayerView view = layer.view(rows);
      if (step == 0)
        std::memset(view.k, 0, layer.planes()[0].size()),
            std::memset(view.v, 0, layer.planes()[1].size());
      if (!is_eager) device.begin_step(2);
      d.ops().kv_append(
          d, {.k = mat_view(k.data(), 2, 256), .v = mat_view(v.data(), 2, 256), .kv = view});
      d.ops().attention(d, {.q = mat_view(q.data(), 2, 1024),
                            .kv = view,
                            .n_heads = 8,
                            .scale = 0.088f,
                            .out = mat_view(outs[is_eager].data(), 2, 1024)});
      if (!is_eager) {
        ASSERT_TRUE(device.end_step().has_value());
      }
    }
    ASSERT_TRUE(same_bits(outs[0], outs[1])) << "step " << step;
  }
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
