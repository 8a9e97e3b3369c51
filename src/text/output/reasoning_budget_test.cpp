// --reasoning-budget (TXT-52): N reasoning tokens, then the closing marker.
#include "text/reasoning_budget.h"

#include "text/output/test_output.h"

namespace kvasir::text {
namespace {

constexpr std::uint32_t kVocab = 600;

struct Family {
  ReasoningFormat format;
  std::string open, close;
  Strings specials;
};
const std::vector<Family> kFamilies{
    {ReasoningFormat::think, "<think>", "</think>", {"<think>", "</think>"}},
    {ReasoningFormat::think, "<think>", "</think>", {}},  // markers as plain text
    {ReasoningFormat::think, "<seed:think>", "</seed:think>", {"<seed:think>", "</seed:think>"}},
    {ReasoningFormat::bracket_think, "[THINK]", "[/THINK]", {"[THINK]", "[/THINK]"}},
    {ReasoningFormat::gemma, "<|channel>thought", "<channel|>", {"<|channel>", "<channel|>"}},
    {ReasoningFormat::harmony,
     "<|channel|>analysis<|message|>",
     "<|end|>",
     {"<|channel|>", "<|message|>", "<|end|>"}}};

std::unique_ptr<TokenConstraint> constraint_of(const Tokenizer& t,
                                               ReasoningFormat format,
                                               std::uint32_t n,
                                               bool starts_open = false) {
  const auto made = make_reasoning_constraint(
      t, {.format = format, .starts_open = starts_open, .n_tokens = n, .vocab = kVocab});
  EXPECT_TRUE(made && *made);
  return (*made)->clone();
}

// What a model writes that would go on with `wish` for ever, token by token, until `n` are out.
std::string written(const Tokenizer& t,
                    TokenConstraint& c,
                    const std::string& wish,
                    std::size_t n) {
  const std::vector<TokenId> ids = ids_of(t, wish);
  std::vector<TokenId> out;
  for (std::size_t i = 0; out.size() < n && i < ids.size();) {
    const auto mask = c.mask();
    EXPECT_TRUE(mask);
    const std::span<const TokenId> forced = c.forced();
    EXPECT_EQ(mask->empty(), forced.empty());
    const TokenId next = forced.empty() ? ids[i++] : forced.front();
    if (!mask->empty()) {
      EXPECT_NE((*mask)[next / 32] >> (next % 32) & 1, 0u);
    }
    EXPECT_TRUE(c.advance(next));
    out.push_back(next);
  }
  std::string text;
  for (const TokenId id : out)
    text += t.is_special(id) ? std::string(t.piece(id)) : t.token_bytes(id);
  return text;
}

TEST(ReasoningBudget, TheMarkerComesAfterNTokensInEveryFamily_TXT_52) {
  for (const Family& f : kFamilies) {
    const Tokenizer t = byte_tokenizer(f.specials);

    EXPECT_EQ(written(t, *constraint_of(t, f.format, 3), f.open + "abcdefg", 99),
              f.open + "abc" + f.close + "defg");
    EXPECT_EQ(written(t, *constraint_of(t, f.format, 2, true), "abcd", 99), "ab" + f.close + "cd");
    EXPECT_EQ(written(t, *constraint_of(t, f.format, 0), f.open + "ab", 99),
              f.open + f.close + "ab");
  }
}

TEST(ReasoningBudget, WhoClosesInTimeIsLeftAlone) {
  for (const Family& f : kFamilies) {
    const Tokenizer t = byte_tokenizer(f.specials);
    const std::string wish = f.open + "abc" + f.close + "the answer is long";

    EXPECT_EQ(written(t, *constraint_of(t, f.format, 20), wish, 99), wish);
  }
}

TEST(ReasoningBudget, TextWithoutReasoningIsLeftAlone) {
  for (const Family& f : kFamilies) {
    const Tokenizer t = byte_tokenizer(f.specials);

    EXPECT_EQ(written(t, *constraint_of(t, f.format, 0), "no thoughts at all, <thin", 99),
              "no thoughts at all, <thin");
  }
}

TEST(ReasoningBudget, HarmonysAnalysisCountsOverAllItsMessages) {
  const Family& f = kFamilies.back();
  const Tokenizer t = byte_tokenizer(f.specials);
  const std::string wish = f.open + "abc" + f.close + f.open + "defg";

  EXPECT_EQ(written(t, *constraint_of(t, f.format, 6), wish, 99),
            f.open + "abc" + f.close + f.open + "de" + f.close + "fg");
}

TEST(ReasoningBudget, AnUndoneStepIsForgotten) {  // SAMP-59
  const Tokenizer t = byte_tokenizer({"<think>", "</think>"});
  const auto c = constraint_of(t, ReasoningFormat::think, 2);
  for (const TokenId id : ids_of(t, "<think>a")) ASSERT_TRUE(c->advance(id));
  const std::size_t mark = c->snapshot();
  ASSERT_TRUE(c->advance(ids_of(t, "b")[0]));
  ASSERT_FALSE(c->forced().empty());

  c->restore(mark);

  EXPECT_TRUE(c->forced().empty());
  EXPECT_EQ(written(t, *c->clone(), "xyz", 99), "x</think>yz");
}

TEST(ReasoningBudget, FormatsWithoutReasoningHaveNone) {
  const auto made = make_reasoning_constraint(
      byte_tokenizer(), {.format = ReasoningFormat::none, .n_tokens = 1, .vocab = kVocab});

  ASSERT_TRUE(made);
  EXPECT_EQ(*made, nullptr);
}

}  // namespace
}  // namespace kvasir::text
