#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace kvasir::text {
namespace {

struct Outcome {
  std::string text;
  bool is_matched = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  auto matcher = StopMatcher::make(stops);
  if (!matcher) ADD_FAILURE() << matcher.error().what;
  Outcome out;
  for (const std::string& piece : pieces) {
    const auto step = matcher->push(piece);
    out.text += step.text;
    out.is_matched = step.is_matched;
    if (step.is_matched) return out;
  }
  out.text += matcher->finish();
  return out;
}

std::vector<std::string> letters(const std::string& text) {
  std::vector<std::string> out;
  for (const char c : text) out.emplace_back(1, c);
  return out;
}

// The rule itself, on the whole text: of all matches those that end first, of them the longest.
Outcome by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, NothingOfALongStopStringIsEmitted_C01) {
  auto matcher = *StopMatcher::make({"hree-fo"});
  std::string shown;
  for (const std::string piece : {"one", " two", " t", "hr", "ee-", "four"}) {
    shown += matcher.push(piece).text;
    EXPECT_EQ(shown.find("hr"), std::string::npos);
  }

  EXPECT_EQ(shown, "one two t");
  EXPECT_TRUE(matcher.is_matched());
  EXPECT_EQ(matcher.matched(), "hree-fo");
}

TEST(StopMatcher, AMatchMayEndInsideAToken_C01) {
  EXPECT_EQ(run({"Pari"}, {"in ", "Paris"}), (Outcome{"in ", true}));
  EXPECT_EQ(run({"wat"}, {" water"}), (Outcome{" ", true}));
}

TEST(StopMatcher, SplitAtEveryBoundaryGivesTheSame) {
  const std::string text = "say END now";
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(run({"END"}, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}),
                (Outcome{"say ", true}));
    }
  }
}

TEST(StopMatcher, EarliestEndWinsThenTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", true}));
  EXPECT_EQ(run({"bc", "abc"}, {"xabcd"}), (Outcome{"x", true}));
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop_TXT61) {
  auto matcher = *StopMatcher::make({"\n\nUser:", "</s>"});

  EXPECT_EQ(matcher.push("hi\n").text, "hi");
  EXPECT_EQ(matcher.push("\nUs").text, "");
  EXPECT_EQ(matcher.push("e ").text, "\n\nUse ");
  EXPECT_EQ(matcher.push("x</").text, "x");
  EXPECT_EQ(matcher.finish(), "</");
}

TEST(StopMatcher, EqualsTheDefinitionOnRandomTexts) {
  std::mt19937 rng(7);
  const auto word = [&](int max) {
    std::string out;
    for (int n = 1 + static_cast<int>(rng() % static_cast<unsigned>(max)); n > 0; --n)
      out += "ab"[rng() % 2];
    return out;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> stops;
    for (int n = 1 + static_cast<int>(rng() % 3); n > 0; --n) stops.push_back("b" + word(5));
    const std::string text = word(30);
    EXPECT_EQ(run(stops, letters(text)), by_definition(stops, text));
    EXPECT_EQ(run(stops, {text}), by_definition(stops, text));
  }
}

TEST(StopMatcher, LimitsNumberAndLength_TXT60) {
  EXPECT_TRUE(StopMatcher::make({}));
  EXPECT_TRUE(StopMatcher::make(std::vector<std::string>(16, std::string(1024, 'x'))));
  EXPECT_FALSE(StopMatcher::make(std::vector<std::string>(17, "x")));
  EXPECT_FALSE(StopMatcher::make({std::string(1025, 'x')}));
  EXPECT_FALSE(StopMatcher::make({""}));
}

}  // namespace
}  // namespace kvasir::text
