// The reference encodings: six real tokenizers in the shared folder, small ones of every part in
// tests/data.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "text/verify_tokenizers.h"

namespace kvasir::text {
namespace {

namespace fs = std::filesystem;

TEST(Tokenizer, EqualsTheReferenceOnEveryCaseOfTheRealTokenizers) {
  const fs::path shared = KVASIR_SHARED;
  if (!fs::exists(shared / "tokenizers")) GTEST_SKIP() << "no shared folder";
  std::string lines;

  const auto sum = verify_tokenizers(shared / "tokenizers", shared / "goldens/tokenizers",
                                     [&](std::string_view line) { (lines += line) += '\n'; });

  ASSERT_TRUE(sum) << sum.error().what;
  EXPECT_EQ(sum->n_tokenizers, 6u);
  EXPECT_EQ(sum->n_cases, 6u * 397u);
  EXPECT_EQ(sum->n_differ, 0u) << lines;
}

// Words beside added tokens, NFKC, single digits (C05) and the rest.
TEST(Tokenizer, EqualsTheReferenceOnSmallTokenizersOfEveryPart) {
  const fs::path data = fs::path(KVASIR_TEST_DATA) / "tokenizers";
  std::string lines;

  const auto sum = verify_tokenizers(data / "made", data / "cases",
                                     [&](std::string_view line) { (lines += line) += '\n'; });

  ASSERT_TRUE(sum) << sum.error().what;
  EXPECT_GE(sum->n_tokenizers, 40u);
  EXPECT_EQ(sum->n_differ, 0u) << lines;
}

}  // namespace
}  // namespace kvasir::text
