// Patterns mean what Oniguruma means (made/regex-* compare with it), and never take more than
// linear time.
#include "text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <chrono>

#include "text/tokenizer/regex_syntax.h"

namespace kvasir::text::tok {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  if (!regex) ADD_FAILURE() << regex.error().what;
  std::vector<Range> ranges;
  EXPECT_TRUE(regex->find_all(text, ranges));
  std::vector<std::string> out;
  for (const Range& r : ranges) out.emplace_back(text.substr(r.begin, r.end - r.begin));
  return out;
}

using Strings = std::vector<std::string>;

TEST(Regex, SpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(matches(R"(\s)", "a\xE1\xA0\x8E\xC2\x85\xC2\xA0\xE2\x80\x8B"),
            (Strings{"\xC2\x85", "\xC2\xA0"}))
      << "U+180E and U+200B are none";
}

TEST(Regex, EmptyMatchesNeverFollowAMatch) {
  EXPECT_EQ(matches("a*", "baac"), (Strings{"", "aa", ""}));
  EXPECT_EQ(matches("", "\xC3\xA9x"), (Strings{"", "", ""}));
}

TEST(Regex, ClassesIntersect) {
  EXPECT_EQ(matches(R"([\p{L}&&[^a-y]]+)", "azzb\xE6\xBC\xA2 z"),
            (Strings{"zz", "\xE6\xBC\xA2", "z"}));
}

TEST(Regex, RefusesWhatDoesNotCompile) {
  for (const char* pattern : {"(", "[a", "a\\", "[z-a]", "(?<=a+)b", "\\p{NoSuchThing}",
                              "[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]"}) {
    EXPECT_FALSE(Regex::compile(pattern)) << pattern;
  }
}

TEST(Regex, PatternsThatBlowUpAreErrorsAndNotHangs) {
  const std::string spaces = std::string(200'000, ' ') + "x";
  for (const char* pattern : {R"((\s+)+$)", R"((\s|\s\s)*y|(\s*)*z)", R"(\s+$)", R"((a|\s)+\1b)"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex) << regex.error().what;
    std::vector<Range> ranges;
    const auto start = std::chrono::steady_clock::now();
    (void)regex->find_all(spaces, ranges);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10.0)
        << pattern;
  }
}

TEST(CodeSets, FollowSetAlgebra) {
  const CodeSet a = {{10, 20}, {30, 40}};
  const CodeSet b = {{15, 35}};

  EXPECT_EQ(unite(a, b), (CodeSet{{10, 40}}));
  EXPECT_EQ(intersect(a, b), (CodeSet{{15, 20}, {30, 35}}));
  EXPECT_EQ(complement(complement(a)), a);
}

}  // namespace
}  // namespace kvasir::text::tok
