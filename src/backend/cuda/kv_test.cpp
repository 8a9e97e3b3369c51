// Appends and conversion write codec::encode_row's bytes (KV-24, KV-28), edge rows included.
#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"

namespace kvasir::backend::cuda::testing {
namespace {

using namespace ops::testing;

// Rows that meet a codec's corners: constants, zeros of both signs, tiny, huge, one outlier, ties
// between codes, a NaN. largest: what the exact type holds (of infinities, the NaN's sign is open).
std::vector<float> edge_rows(std::uint32_t dim,
                             std::uint32_t n_heads,
                             float largest,
                             std::mt19937& rng) {
  std::vector<std::vector<float>> rows;
  const auto add = [&](auto&& f) {
    std::vector<float> row(dim);
    for (std::uint32_t i = 0; i < dim; ++i) row[i] = f(i);
    rows.push_back(row);
  };
  std::normal_distribution<float> normal;
  for (const float x : {0.0f, -0.0f, 1.0f, -3.5f, 1e-9f, 1e-38f, 1e-41f, 65504.0f, 1e6f, -1e30f})
    add([&](std::uint32_t) { return x; });
  add([](std::uint32_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
  add([](std::uint32_t i) { return i % 3 == 0 ? -0.0f : 0.0f; });
  add([](std::uint32_t i) { return i == 9 ? 100.0f : 0.0f; });
  add([](std::uint32_t i) { return i == 0 ? -7.0f : -0.0f; });
  add([](std::uint32_t i) { return static_cast<float>(i); });
  add([](std::uint32_t i) { return static_cast<float>(i % 16) * 0.5f - 3.75f; });
  add([](std::uint32_t i) { return i == 5 ? std::nanf("") : 0.25f; });
  for (const float scale : {1.0f, 1e-3f, 1e-20f, 300.0f, 1e-6f})
    add([&](std::uint32_t) { return normal(rng) * scale; });
  add([&](std::uint32_t) { return 40.0f + normal(rng) * 1e-3f; });
  while (rows.size() % n_heads != 0) add([&](std::uint32_t) { return normal(rng); });
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  for (float& x : all) x = x > largest ? largest : x < -largest ? -largest : x;
  return all;
}

struct Form {
  std::string name;
  codec::KvCodec k, v;
  DType type;
  std::uint32_t dim;
};

std::vector<Form> forms() {
  std::vector<Form> out;
  for (const auto& [type, scale] : {std::pair{DType::bf16, codec::ScaleType::bf16},
                                    {DType::f16, codec::ScaleType::f16},
                                    {DType::f32, codec::ScaleType::f32}}) {
    for (const std::uint32_t dim : {64u, 128u, 96u, 256u, 512u, 1024u}) {
      for (const auto& pair : codec::paired_kv_codecs(scale)) {
        if (!codec::can_store(pair.k, dim) || !codec::can_store(pair.v, dim)) continue;
        std::string name = codec::signature_part(codec::exact_kv(scale)) + "_d" +
                           std::to_string(dim) + "_" + codec::signature_part(pair.k) + "_" +
                           codec::signature_part(pair.v);
        std::replace(name.begin(), name.end(), ':', '_');
        out.push_back({name, pair.k, pair.v, type, dim});
      }
    }
  }
  return out;
}

class CudaKvRows : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
};
INSTANTIATE_TEST_SUITE_P(Forms, CudaKvRows, ::testing::ValuesIn(forms()), [](const auto& i) {
  return i.param.name;
});

TEST_P(CudaKvRows, AreTheCodecsBytes) {
  const Form& form = GetParam();
  std::mt19937 rng(form.dim);
  AttentionCase c{.n_heads = 2,
                  .n_kv_heads = 2,
                  .head_dim = form.dim,
                  .block_tokens = 8,
                  .type = form.type,
                  .k_codec = form.k,
                  .v_codec = form.v};
  std::vector<float> k = edge_rows(form.dim, 2, form.type == DType::f16 ? 65504.0f : 3e38f, rng),
                     v = k;
  const auto n = static_cast<std::uint32_t>(k.size() / form.dim / 2);
  c.lengths = {n};
  KvLayer layers[2] = {KvLayer(c, n), KvLayer(c, n)}, converted(c, n);
  const auto cuda = make(), oracle = make_oracle();
  for (int i = 0; i < 2; ++i) {
    ops::Device& device = i == 0 ? *cuda : *oracle;
    for (const bool is_encoded : {false, true}) {
      const KvRowView row{layers[i].table(0), 0, 0, n, 0, is_encoded};
      device.ops().kv_append(device, {.k = mat_view(k.data(), n, 2 * form.dim),
                                      .v = mat_view(v.data(), n, 2 * form.dim),
                                      .kv = layers[i].view({&row, 1})});
    }
  }
  ASSERT_EQ(layers[0].planes().size(), layers[1].planes().size());
  for (std::size_t i = 0; i < layers[0].planes().size(); ++i)
    EXPECT_EQ(layers[0].planes()[i], layers[1].planes()[i]) << "plane " << i;

  const KvRowView row{converted.table(0), 0, 0, n, 0, false};
  cuda->ops().kv_append(*cuda, {.k = mat_view(k.data(), n, 2 * form.dim),
                                .v = mat_view(v.data(), n, 2 * form.dim),
                                .kv = converted.view({&row, 1})});
  for (const auto& [begin, end] : {std::pair{0u, 5u}, {5u, n}})
    cuda->ops().kv_convert(*cuda, {.kv = converted.view({}),
                                   .from = converted.table(0),
                                   .to = converted.table(0),
                                   .begin = begin,
                                   .end = end});
  EXPECT_EQ(converted.planes(), layers[1].planes());
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
