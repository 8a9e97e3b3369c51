// Encoding: origins (TXT-32), BOS (TXT-13), limits (TXT-14), and hostile lengths (C04).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "base/file.h"
#include "json/json.h"
#include "text/tokenizer/test_tokenizers.h"
#include "text/verify_tokenizers.h"

namespace kvasir::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

constexpr const char* kMarkers = R"({"id":0,"content":"<|a|>","special":true,"normalized":false},
                                    {"id":0,"content":"<b>","special":false,"normalized":false},
                                    {"id":0,"content":"<|a|><|a|>x","special":true,"normalized":false})";
constexpr TokenId kA = 31, kB = 32;  // after the 31 characters

Ids encode(const Tokenizer& t, std::string_view text, const EncodeOptions& options = {}) {
  auto ids = t.encode(text, options);
  if (!ids) ADD_FAILURE() << ids.error().what;
  return *std::move(ids);
}

Ids encode(const Tokenizer& t, std::vector<TextSpan> spans) {
  auto ids = t.encode(spans, false);
  if (!ids) ADD_FAILURE() << ids.error().what;
  return *std::move(ids);
}

TEST(Encode, MatchesSpecialTokensOnlyWhereTheCallerAllows) {
  const Tokenizer t = load_json(char_tokenizer_json("", kMarkers));

  EXPECT_THAT(encode(t, "x<|a|>"), ElementsAre(23, kA));
  EXPECT_THAT(encode(t, "x<|a|>", {.parse_special = false}), ElementsAre(23, 27, 28, 0, 28, 29));
  EXPECT_THAT(encode(t, "x<b>", {.parse_special = false}), ElementsAre(23, kB))
      << "not special: always matched";
}

TEST(Encode, ContentCannotForgeASpecialTokenAcrossSpanBorders) {
  const Tokenizer t = load_json(char_tokenizer_json("", kMarkers));
  const Ids spelled = {27, 28, 0, 28, 29};

  EXPECT_EQ(encode(t, {{"<|a|>", true}}), Ids{kA});
  EXPECT_EQ(encode(t, {{"<|", true}, {"a|>", true}}), Ids{kA})
      << "a border between allowed spans does not matter";
  EXPECT_EQ(encode(t, {{"<|a|>", false}}), spelled);
  EXPECT_EQ(encode(t, {{"<|a", true}, {"|>", false}}), spelled);
  EXPECT_EQ(encode(t, {{"<", false}, {"|a|>", true}}), spelled);
  EXPECT_THAT(encode(t, {{"<|", false}, {"<|a|>", true}}), ElementsAre(27, 28, kA));
  EXPECT_THAT(encode(t, {{"<|a|><|a|>", true}, {"x", false}}), ElementsAre(kA, kA, 23))
      << "content does not swallow the template's own markers either";
}

TEST(Encode, OriginsSurviveNormalizersAndBadUtf8) {
  const std::string marker = R"({"id":0,"content":"<|a|>","special":true,"normalized":true})";
  const Tokenizer t = load_json(
      char_tokenizer_json(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},
      {"type":"Lowercase"},{"type":"Replace","pattern":{"String":"z"},"content":"yy"}]})",
                          marker));

  EXPECT_THAT(encode(t, {{"Z", false}, {"<|A|>", true}}), ElementsAre(24, 24, kA));
  EXPECT_THAT(encode(t, {{"Z", true}, {"<|A|>", false}}), ElementsAre(24, 24, 27, 28, 0, 28, 29));
  EXPECT_THAT(encode(t, {{"\xFFz", false}, {"<|A|>", true}, {"<|A|>", false}}),
              ElementsAre(24, 24, kA, 27, 28, 0, 28, 29));
  EXPECT_THAT(encode(t, {{"<|\xEF\xBD\x81|>", true}, {"<|\xEF\xBD\x81", true}, {"|>", false}}),
              ElementsAre(kA, 27, 28, 0, 28, 29))
      << "a fullwidth letter keeps its origin";
}

TEST(Encode, TextCannotSpellASpecialTokenThroughTheModel) {
  const std::string unigram = R"({"added_tokens":[{"id":1,"content":"<s>","special":true}],
    "model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["<s>",0],["s",-5],["<",-5],[">",-5]]}})";
  const std::string words = R"({"added_tokens":[{"id":1,"content":"<s>","special":true}],
    "model":{"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0,"<s>":1,"a":2}}})";

  EXPECT_THAT(encode(load_json(unigram), "<s>"), ElementsAre(1));
  EXPECT_THAT(encode(load_json(unigram), "<s>", {.parse_special = false}), ElementsAre(3, 2, 4));
  EXPECT_THAT(encode(load_json(words), "<s>", {.parse_special = false}), ElementsAre(0));
}

TEST(EncodeChat, TakesExactlyOneBosBackWhenTheTextBeginsWithIt) {
  const std::string post =
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|a|>","type_id":0}},
    {"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<b>","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}}],
    "special_tokens":{"<|a|>":{"id":"<|a|>","ids":[31],"tokens":["<|a|>"]},"<b>":{"id":"<b>","ids":[32],"tokens":["<b>"]}}})";
  const Tokenizer t =
      load_json(char_tokenizer_json(post, kMarkers), R"({"bos_token":"<|a|>","eos_token":"<b>"})");
  const auto chat = [&](std::string_view text) {
    const TextSpan span{text, true};
    return *t.encode_chat({&span, 1});
  };

  EXPECT_TRUE(t.adds_bos());
  EXPECT_TRUE(t.adds_eos());
  EXPECT_THAT(chat("x"), ElementsAre(kA, 23)) << "no EOS: the prompt goes on";
  EXPECT_THAT(chat("<|a|>x"), ElementsAre(kA, 23));
  EXPECT_THAT(chat("<|a|><|a|>y"), ElementsAre(kA, kA, 24));
  EXPECT_THAT(encode(t, "<|a|>x"), ElementsAre(kA, kA, 23, kB))
      << "raw completions keep the tokenizer's own rule";
}

TEST(Config, NamesSpecialTokensAndAddsBos) {
  const std::string config =
      R"({"bos_token":{"content":"<|a|>"},"eos_token":"z","pad_token":null,"add_bos_token":true,
    "add_eos_token":true,"additional_special_tokens":["<b>"]})";
  const Tokenizer t = load_json(char_tokenizer_json("", kMarkers), config);

  EXPECT_EQ(t.bos(), kA);
  EXPECT_EQ(t.eos(), 25u);
  EXPECT_FALSE(t.pad());
  EXPECT_TRUE(t.is_special(kB));
  EXPECT_THAT(encode(t, "y"), ElementsAre(kA, 24, 25));
  ASSERT_EQ(t.named_special_tokens().size(), 2u);
  EXPECT_EQ(t.named_special_tokens()[0],
            (std::pair<std::string, std::string>("bos_token", "<|a|>")));
}

TEST(Config, CleansSpacesOnlyWhenItSaysSo) {
  const std::string json =
      char_tokenizer_json(R"("decoder":{"type":"Fuse"})", R"({"id":0,"content":"."})");
  const Ids ids = {0, 26, 31, 26, 1};

  EXPECT_EQ(load_json(json).decode(ids), "a . b");
  EXPECT_EQ(load_json(json, R"({"clean_up_tokenization_spaces":false})").decode(ids), "a . b");
  EXPECT_EQ(load_json(json, R"({"clean_up_tokenization_spaces":true})").decode(ids), "a. b");
}

TEST(Encode, BertPairHasBothSeparators) {
  const Tokenizer t = made_tokenizer("word-piece");

  EXPECT_THAT(*t.encode_pair("the foo", "quick"), ElementsAre(2, 4, 10, 3, 5, 3));
}

TEST(Encode, LongRunsOfOneCharacterAreExactAndFast_C04) {
  const fs::path data = fs::path(KVASIR_TEST_DATA) / "tokenizers";
  std::string lines;
  const auto report = [&](std::string_view line) { (lines += line) += '\n'; };

  const auto ours = verify_tokenizers(data / "made/pre-qwen35", data / "long", report);
  ASSERT_TRUE(ours) << ours.error().what;
  EXPECT_EQ(ours->n_differ, 0u) << lines;

  if (!fs::exists(fs::path(KVASIR_SHARED) / "tokenizers")) GTEST_SKIP() << "no shared folder";
  const auto sum = verify_tokenizers(fs::path(KVASIR_SHARED) / "tokenizers", data / "long", report);
  ASSERT_TRUE(sum) << sum.error().what;
  EXPECT_EQ(sum->n_tokenizers, 6u);
  EXPECT_EQ(sum->n_differ, 0u) << lines;
}

TEST(Encode, TakesUnderASecondForAnyRepeatedCharacter_C04) {
  const Tokenizer t = made_tokenizer("pre-qwen35");
  for (const std::string unit : {"A", "a", ".", " ", "\n", "1", "\xE6\xBC\xA2", "e\xCC\x81",
                                 "\xCC\x81\xCC\x96", "aB", "\x01"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    const std::clock_t start = std::clock();  // of the process: the machine may be busy
    ASSERT_TRUE(t.encode(text));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(seconds, 1.0) << unit;
#else
    EXPECT_LT(seconds, 20.0) << unit;
#endif
  }
}

TEST(Encode, RefusesTextAbove16MiB) {
  const auto ids = made_tokenizer("word-level").encode(std::string((16u << 20) + 1, 'a'));

  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, Errc::invalid_argument);
}

TEST(Encode, IsTheSameFromManyThreads) {
  const Tokenizer t = made_tokenizer("pre-kimi");
  const std::string text = "Hello  World \xE6\xBC\xA2\xE5\xAD\x97 it's 12345\n";
  const Ids want = encode(t, text);
  std::vector<std::thread> threads;
  std::vector<int> bad(4);
  for (int& n_bad : bad) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) n_bad += *t.encode(text) == want ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_THAT(bad, testing::Each(0));
}

TEST(Load, NamesWhatItDoesNotUnderstand) {
  const auto error = [](const std::string& json) {
    const auto t = Tokenizer::from_json(json);
    return t ? std::string("loaded") : t.error().what;
  };

  EXPECT_THAT(error("{"), HasSubstr("JSON"));
  EXPECT_THAT(error("{}"), HasSubstr("no model"));
  EXPECT_THAT(error(char_tokenizer_json(R"("normalizer":{"type":"Odd"})")), HasSubstr("\"Odd\""));
  EXPECT_THAT(
      error(char_tokenizer_json(
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a("},"behavior":"Removed"})")),
      HasSubstr("a("));
  EXPECT_THAT(error(char_tokenizer_json(R"("decoder":{"type":"Odd"})")), HasSubstr("\"Odd\""));
  EXPECT_THAT(error(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
              HasSubstr("a b"));
  EXPECT_THAT(error(R"({"model":{"type":"WordLevel","vocab":{"a":16777216}}})"),
              HasSubstr("16777216"));
}

TEST(Load, TakesSparseIds) {
  const Tokenizer t =
      load_json(R"({"model":{"type":"WordLevel","vocab":{"a":7,"b":70000},"unk_token":"a"}})");

  EXPECT_EQ(t.vocab_size(), 70001u);
  EXPECT_TRUE(t.has_token(7));
  EXPECT_FALSE(t.has_token(8));
  EXPECT_EQ(t.piece(70000), "b");
  EXPECT_EQ(t.decode(Ids{7, 8, 70000, 4'000'000'000u}), "a b") << "unknown ids add nothing";
}

}  // namespace
}  // namespace kvasir::text
