#include "kvasir/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/isa.h"
#include "kvasir/verify/prompt_logits.h"

namespace kvasir::verify {
namespace {

std::filesystem::path golden(const char* name) {
  return std::filesystem::path(KVASIR_GOLDEN_MODELS) / name;
}

SameBitsOptions same_bits_options(const std::filesystem::path& model) {
  SameBitsOptions options;
  options.open.model = model;
  options.open.backend = Backend::cpu;
  options.open.n_threads = 2;
  options.n_generate = 12;
  return options;
}

void ignore(const std::string&) {}

TEST(VerifySameBits, FindsNoDifferenceOnAGolden) {
  const auto summary = same_bits(same_bits_options(golden("llama")), ignore);

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_failed, 0u) << summary->text;
  EXPECT_GT(summary->n_checked, 100u);
}

TEST(VerifySameBits, ReportsAnOpThatDependsOnTheRowCount) {
  SameBitsOptions options = same_bits_options(golden("llama"));
  options.plant_row_count_fault = true;

  const auto summary = same_bits(options, ignore);

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_GT(summary->n_failed, 0u);
}

// One set of logits whatever --isa says: dense, quantized, mixture, sliding, recurrent and latent.
TEST(VerifyIsas, GiveOneSetOfLogitsOnGoldens) {
  for (const char* name : {"llama", "gemma4", "gpt-oss", "qwen3-moe", "qwen3_5", "glm-moe-dsa"}) {
    const auto portable = make_device(Backend::cpu, 2, "portable");
    ASSERT_TRUE(portable);
    const auto expected = prompt_logits(golden(name), **portable, DType::bf16);
    ASSERT_TRUE(expected) << expected.error().what;
    for (const auto isa : backend::cpu::kIsas) {
      if (!backend::cpu::cpu_supports(isa)) continue;
      const auto device = make_device(Backend::cpu, 2, std::string(backend::cpu::name_of(isa)));
      ASSERT_TRUE(device);
      EXPECT_EQ((*device)->numerics_id(), (*portable)->numerics_id());
      const auto got = prompt_logits(golden(name), **device, DType::bf16);
      ASSERT_TRUE(got) << got.error().what;
      ASSERT_EQ(got->size(), expected->size());
      for (std::size_t i = 0; i < got->size(); ++i)
        EXPECT_EQ((*got)[i].logits, (*expected)[i].logits)
            << name << " " << backend::cpu::name_of(isa) << " prompt " << i;
    }
  }
}

TEST(VerifyGoldens, CpuEqualsTheMirrorAndFaultsAreNoticed) {
  GoldenOptions options{.folder = KVASIR_GOLDEN_MODELS,
                        .only = {"llama"},
                        .backend = Backend::cpu,
                        .n_threads = 2,
                        .isa = "auto"};
  std::string lines;

  const auto summary = goldens(options, [&](const std::string& line) { lines += line + "\n"; });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_failed, 0u) << lines;
}

TEST(VerifyGoldens, FaultsOfLatentLayersAndTheirIndexAreNoticed) {
  const GoldenOptions options{.folder = KVASIR_GOLDEN_MODELS, .only = {"glm-moe-dsa"}};
  std::string lines;

  const auto summary = goldens(options, [&](const std::string& line) { lines += line + "\n"; });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_failed, 0u) << lines;
}

TEST(VerifyGoldens, NamesAMissingCheckpoint) {
  const auto summary = goldens({.folder = KVASIR_GOLDEN_MODELS, .only = {"no-such-model"}}, ignore);

  ASSERT_FALSE(summary);
  EXPECT_NE(summary.error().what.find("no-such-model"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::verify
