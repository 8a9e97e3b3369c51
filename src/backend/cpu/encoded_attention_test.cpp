// Attention over encoded rows (KV-9…17, KV-20, KV-30): equal to ref:mirror for every codec, close
// to exact attention over the decoded rows, a query's bits its own; conversion equals appending.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/testing/kv.h"

namespace kvasir::backend::cpu::testing {
namespace {

struct Form {
  std::string name;
  codec::KvCodec k, v;
};

codec::ScaleType scale_type_of(DType type) {
  return type == DType::f32   ? codec::ScaleType::f32
         : type == DType::f16 ? codec::ScaleType::f16
                              : codec::ScaleType::bf16;
}

std::string name_of(const codec::KvCodecPair& pair) {
  std::string name = codec::signature_part(pair.k) + "_" + codec::signature_part(pair.v);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

// Every codec of keys and of values that rows of `dim` can have.
std::vector<Form> forms_of(std::uint32_t dim, DType type) {
  std::vector<Form> out;
  for (const codec::KvCodecPair& pair : codec::paired_kv_codecs(scale_type_of(type)))
    out.push_back({name_of(pair), pair.k, pair.v});
  std::erase_if(out, [&](const Form& f) {
    return !codec::can_store(f.k, dim) || !codec::can_store(f.v, dim);
  });
  return out;
}

AttentionCase with_form(AttentionCase c, const Form& form) {
  c.k_codec = form.k, c.v_codec = form.v;
  return c;
}

// Shape, type and lengths; each is run with every form.
struct Named {
  const char* name;
  AttentionCase c;
};
const Named kCases[] = {
    {"d32", {.n_heads = 2, .head_dim = 32, .lengths = {66}}},
    {"d64", {.n_heads = 6, .head_dim = 64, .lengths = {130}}},
    {"d96", {.n_heads = 2, .head_dim = 96, .lengths = {65}}},
    {"d128", {.n_heads = 4, .head_dim = 128, .lengths = {70, 63}}},
    {"d128_f32", {.n_heads = 2, .head_dim = 128, .type = DType::f32, .lengths = {129}}},
    {"d128_f16", {.n_heads = 2, .head_dim = 128, .type = DType::f16, .lengths = {64}}},
    {"d256", {.n_heads = 5, .n_kv_heads = 1, .head_dim = 256, .lengths = {67}}},
    {"d512", {.n_heads = 1, .n_kv_heads = 1, .head_dim = 512, .lengths = {66}}},
    {"d1024", {.n_heads = 1, .n_kv_heads = 1, .head_dim = 1024, .lengths = {65}}},
    {"window", {.n_heads = 4, .head_dim = 64, .window = 40, .lengths = {150}}},
    {"softcap_sinks",
     {.n_heads = 4, .head_dim = 64, .softcap = 2.0f, .sinks = true, .lengths = {80}}},
    {"exact_row_beside", {.n_heads = 4, .head_dim = 64, .lengths = {70, 40, 66}, .exact_rows = 2}},
};

class EncodedAttention : public ::testing::TestWithParam<Named> {
 protected:
  // f(case with a form, its name), the form in any failure's trace.
  template <class F>
  void for_forms(F&& f) {
    for (const Form& form : forms_of(GetParam().c.head_dim, GetParam().c.type)) {
      SCOPED_TRACE(form.name);
      f(with_form(GetParam().c, form));
    }
  }
  std::mt19937 rng_{5};
  Activations in_ = draw(GetParam().c, rng_);
};

INSTANTIATE_TEST_SUITE_P(Shapes, EncodedAttention, ::testing::ValuesIn(kCases), [](const auto& i) {
  return i.param.name;
});

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

TEST_P(EncodedAttention, EqualsTheMirrorBitForBit) {
  const auto cpu = make(), mirror = make_mirror();
  for_forms([&](const AttentionCase& c) {
    KvLayer on_cpu(c, 150), on_mirror(c, 150);
    const auto got = attend_all(*cpu, c, in_, on_cpu);

    EXPECT_TRUE(same_bits(got, attend_all(*mirror, c, in_, on_mirror)));
    EXPECT_EQ(on_cpu.planes(), on_mirror.planes());
  });
}

// docs/numerics.md: operands rounded to bf16, here those of values at the scale of the row's range.
TEST_P(EncodedAttention, IsCloseToTheOracle) {
  const auto cpu = make(), oracle = make_oracle();
  for_forms([&](const AttentionCase& c) {
    EXPECT_LE(worst_difference(attend_all(*cpu, c, in_), attend_all(*oracle, c, in_)),
              c.type == DType::bf16 ? 6e-2 : 1e-5);
  });
}

// Window, committed and single decodes are one order (KV-30), whatever the blocks.
TEST_P(EncodedAttention, BitsDoNotDependOnBlocksOrChunks) {
  const auto cpu = make(1);
  for_forms([&](AttentionCase c) {
    const auto expected = attend_all(*cpu, c, in_);
    for (const auto& [block, chunk] : {std::pair{8u, 7u}, {64u, 1u}, {512u, 64u}}) {
      c.block_tokens = block, c.chunk = chunk;
      EXPECT_TRUE(same_bits(attend_all(*cpu, c, in_), expected))
          << "blocks of " << block << ", chunks of " << chunk;
    }
  });
}

TEST_P(EncodedAttention, BitsDoNotDependOnThreads) {
  const auto one = make(1), three = make(3);
  for_forms([&](const AttentionCase& c) {
    EXPECT_TRUE(same_bits(attend_all(*one, c, in_), attend_all(*three, c, in_)));
  });
}

TEST_P(EncodedAttention, IsTheSameOnEveryInstructionSet) {
  const auto devices = every_device(2);
  for_forms([&](AttentionCase c) {
    const auto expected = attend_all(*make(2, Isa::portable), c, in_);
    for (const std::uint32_t chunk : {c.chunk, 1u}) {  // 1: codes decoded within products
      c.chunk = chunk;
      for (const auto& [name, device] : devices)
        EXPECT_TRUE(same_bits(attend_all(*device, c, in_), expected)) << name << " " << chunk;
    }
  });
}

// The oracle against a dense f64 attention over rows that codec::decode_row reads: the last query
// of the first row.
TEST_P(EncodedAttention, OracleIsDenseAttentionOverDecodedRows) {
  const auto oracle = make_oracle();
  for_forms([&](const AttentionCase& c) {
    KvLayer layer(c, 150);
    const auto got = attend_all(*oracle, c, in_, layer);
    const std::uint32_t n = c.lengths[0], heads = c.n_heads / c.n_kv_heads;
    const KvLayerView kv = layer.view({});
    const auto row = [&](const KvEncodedSide& side, std::uint32_t head, std::uint32_t p) {
      std::vector<float> x(c.head_dim);
      const BlockId block = layer.table(0)[p / c.block_tokens];
      codec::decode_row(side.codec, side.row(kv.row_index(block, head, p % c.block_tokens)),
                        c.head_dim, x.data());
      if (codec::is_rotated(side.codec)) codec::unrotate(x.data(), c.head_dim);
      return x;
    };
    for (std::uint32_t h = 0; h < c.n_heads; ++h) {
      const float* const q = &in_.q[(std::size_t{n - 1} * c.n_heads + h) * c.head_dim];
      std::vector<double> out(c.head_dim);
      double total = c.sinks ? std::exp(static_cast<double>(in_.sinks[h])) : 0.0;
      for (std::uint32_t p = c.window != 0 && n > c.window ? n - c.window : 0; p < n; ++p) {
        const auto k = row(kv.k_encoded, h / heads, p), v = row(kv.v_encoded, h / heads, p);
        double s = 0;
        for (std::size_t d = 0; d < c.head_dim; ++d)
          s += static_cast<double>(q[d]) * static_cast<double>(k[d]);
        s *= 0.125;
        const double cap = static_cast<double>(c.softcap);
        const double weight = std::exp(cap > 0 ? cap * std::tanh(s / cap) : s);
        total += weight;
        for (std::size_t d = 0; d < c.head_dim; ++d) out[d] += weight * static_cast<double>(v[d]);
      }
      for (std::size_t d = 0; d < c.head_dim; ++d)
        EXPECT_NEAR(static_cast<double>(got[(std::size_t{n - 1} * c.n_heads + h) * c.head_dim + d]),
                    out[d] / total, 1e-5);
    }
  });
}

// KV-24, KV-28: exact rows converted are the bytes that appending in encoded form writes.
TEST_P(EncodedAttention, ConversionWritesWhatAppendsDo) {
  const auto cpu = make(3), mirror = make_mirror();
  for_forms([&](AttentionCase c) {
    c.exact_rows = 0;
    KvLayer appended(c, 150);
    attend_all(*cpu, c, in_, appended);
    for (ops::Device* device : {cpu.get(), mirror.get()}) {
      KvLayer converted(c, 150);
      c.exact_rows = ~0u;
      attend_all(*device, c, in_, converted);
      for (std::size_t r = 0; r < c.lengths.size(); ++r) {
        for (const auto& [begin, end] : {std::pair{0u, 9u}, {9u, c.lengths[r]}})
          device->ops().kv_convert(*device, {.kv = converted.view({}),
                                             .from = converted.table(r),
                                             .to = converted.table(r),
                                             .begin = begin,
                                             .end = end});
      }
      for (std::size_t i = 2; i < appended.planes().size(); ++i)
        EXPECT_EQ(appended.planes()[i], converted.planes()[i]) << "plane " << i;
    }
  });
}

// Few heads on many threads: a lone query's tiles are split between them and merged in order, and
// turned back once (KV-16).
TEST(EncodedAttentionSplit, OverTilesChangesNoBit) {
  const auto one = make(1), many = make(8);
  std::mt19937 rng{41};
  for (const Form& form : forms_of(64, DType::bf16)) {
    AttentionCase c =
        with_form({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .lengths = {530}}, form);
    const Activations in = draw(c, rng);
    c.chunk = 53;
    const auto expected = attend_all(*one, c, in);
    c.chunk = 1;
    EXPECT_TRUE(same_bits(attend_all(*many, c, in), expected)) << form.name;
  }
}

// Codebooks of any width serve keys too, though no listed codec of keys has one: a codec is its
// file and its line in the list. (Those of values are rotated, which neither side undoes for keys.)
TEST(EncodedAttentionKeys, MayHaveACodebookOfAnyWidth) {
  const auto cpu = make(), mirror = make_mirror(), plain = make(2, Isa::portable);
  for (const int bits : {2, 3, 4, 5, 8}) {
    for (const DType type : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(std::to_string(bits) + (type == DType::f32 ? " bits, f32" : " bits, bf16"));
      AttentionCase c{.n_heads = 4, .head_dim = 64, .type = type, .lengths = {70}};
      c.k_codec = c.v_codec = codec::turbo_values_kv(bits);
      std::mt19937 rng(5);
      const Activations in = draw(c, rng);
      const auto expected = attend_all(*mirror, c, in);
      for (const std::uint32_t chunk : {c.chunk, 1u}) {  // 1: codes decoded within products
        c.chunk = chunk;
        EXPECT_TRUE(same_bits(attend_all(*cpu, c, in), expected));
        EXPECT_TRUE(same_bits(attend_all(*plain, c, in), expected));
      }
    }
  }
}

// A NaN key makes the queries that see it NaN, and no other.
TEST(EncodedAttentionRows, DoNotTouchEachOther) {
  for (const Form& form : forms_of(64, DType::bf16)) {
    SCOPED_TRACE(form.name);
    std::mt19937 rng(9);
    const AttentionCase both = with_form({.lengths = {70, 90}}, form);
    Activations in = draw(both, rng);
    const auto cpu = make();
    const auto clean = attend_all(*cpu, both, in);
    in.k[(70 + 5) * 2 * 64] = std::nanf("");  // a key of the second row
    in.v[(70 + 80) * 2 * 64] = std::nanf("");

    const auto got = attend_all(*cpu, both, in);

    EXPECT_EQ(std::memcmp(got.data(), clean.data(), (70 + 5) * std::size_t{6} * 64 * sizeof(float)),
              0);
    EXPECT_TRUE(std::isnan(got[(70 + 5) * std::size_t{6} * 64]));
    EXPECT_TRUE(std::isnan(got.back() + got[(159) * std::size_t{6} * 64]));
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
