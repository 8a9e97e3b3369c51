#include "kvasir/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

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
