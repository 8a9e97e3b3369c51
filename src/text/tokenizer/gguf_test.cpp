// Tokenizers of GGUF files: with the metadata that a converter would write for the reference
// tokenizers, the ids are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/file.h"
#include "json/json.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/test_tokenizers.h"

namespace kvasir::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

const fs::path kShared = KVASIR_SHARED;

json::Value read_json(const fs::path& path) {
  const auto bytes = read_file(path, 256u << 20);
  EXPECT_TRUE(bytes) << bytes.error().what;
  return *json::parse(*bytes, {.max_bytes = 256u << 20});
}

GgufVocab convert(const std::string& name, const std::string& model, const std::string& pre) {
  const json::Value root = read_json(kShared / "tokenizers" / name / "tokenizer.json.xz");
  GgufVocab out{.model = model, .pre = pre};
  const auto put = [&](const std::string& piece, std::int64_t id, std::int32_t type) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= out.tokens.size()) {
      out.tokens.resize(at + 1);
      out.token_types.resize(at + 1, 5);
    }
    out.tokens[at] = piece;
    out.token_types[at] = type;
  };
  for (const auto& [piece, id] : *root.find("model")->find("vocab")->as_object())
    put(piece, *id.as_int(), 1);
  for (const json::Value& token : *root.find("added_tokens")->as_array()) {
    put(token.string_or("content", ""), token.int_or("id", 0),
        token.bool_or("special", false) ? 3 : 4);
  }
  for (const json::Value& merge : *root.find("model")->find("merges")->as_array()) {
    const json::Array* pair = merge.as_array();
    out.merges.push_back(pair ? *(*pair)[0].as_string() + " " + *(*pair)[1].as_string()
                              : *merge.as_string());
  }
  return out;
}

void expect_reference_ids(const Tokenizer& t, const std::string& name) {
  const json::Value root = read_json(kShared / "goldens/tokenizers" / (name + ".json.xz"));
  std::size_t n_differ = 0;
  for (const json::Value& one : *root.find("cases")->as_array()) {
    Ids want;
    for (const json::Value& id : *one.find("ids")->as_array())
      want.push_back(static_cast<TokenId>(*id.as_int()));
    const std::string text = one.string_or("text", "");
    const auto got = t.encode(text, {.add_special = false});
    const bool is_same = got && *got == want &&
                         t.decode(want, {.skip_special = false}) == one.string_or("decoded", "");
    if (!is_same && n_differ++ == 0) ADD_FAILURE() << name << ": " << text;
  }
  EXPECT_EQ(n_differ, 0u) << name;
}

struct Kind {
  const char *name, *pre;
};

class GgufGpt2 : public testing::TestWithParam<Kind> {};

TEST_P(GgufGpt2, HasTheIdsOfTheOriginal) {
  if (!fs::exists(kShared / "tokenizers")) GTEST_SKIP() << "no shared folder";
  const auto t = Tokenizer::from_gguf(convert(GetParam().name, "gpt2", GetParam().pre));

  ASSERT_TRUE(t) << t.error().what;
  expect_reference_ids(*t, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Pre,
                         GgufGpt2,
                         testing::Values(Kind{"llama3", "llama-bpe"},
                                         Kind{"gptoss", "gpt-4o"},
                                         Kind{"qwen3", "qwen2"},
                                         Kind{"deepseek_v3", "deepseek-v3"}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(GgufLlama, HasTheIdsOfTheOriginal) {
  if (!fs::exists(kShared / "tokenizers")) GTEST_SKIP() << "no shared folder";
  GgufVocab vocab = convert("llama2", "llama", "");
  const auto merges = std::exchange(vocab.merges, {});
  // A piece's score tells when it is merged: what the merge list tells by rank.
  vocab.scores.assign(vocab.tokens.size(), -1e9f);
  std::map<std::string, float> scores;
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ', 1);
    scores.emplace(merge.substr(0, space) + merge.substr(space + 1),
                   -static_cast<float>(scores.size()));
  }
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (const auto at = scores.find(vocab.tokens[id]); at != scores.end())
      vocab.scores[id] = at->second;
    if (vocab.tokens[id].starts_with("<0x")) vocab.token_types[id] = 6;
  }

  const auto t = Tokenizer::from_gguf(vocab);

  ASSERT_TRUE(t) << t.error().what;
  expect_reference_ids(*t, "llama2");
  EXPECT_TRUE(t->adds_bos());
  EXPECT_FALSE(t->adds_eos());
  EXPECT_THAT(*t->encode(""), ElementsAre(1));
}

GgufVocab tiny_llama() {
  return {.model = "llama",
          .tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "x", "y", "\xE2\x96\x81\xE2\x96\x81",
                     "\xE2\x96\x81x", "<u>"},
          .scores = {0, 0, 0, -9, -9, -9, -2, -1, 0},
          .token_types = {2, 3, 3, 1, 1, 1, 1, 1, 4}};
}

TEST(GgufLlama, MergesByScoreAndMarksSpaces) {
  const Tokenizer t = *Tokenizer::from_gguf(tiny_llama());

  EXPECT_THAT(*t.encode("x"), ElementsAre(1, 7));
  EXPECT_THAT(*t.encode("  x"), ElementsAre(1, 6, 7)) << "leftmost of the better pair";
  EXPECT_THAT(*t.encode("xz z"), ElementsAre(1, 7, 0, 3, 0)) << "no byte tokens: unk";
  EXPECT_THAT(*t.encode("y<u>y", {.add_special = false}), ElementsAre(3, 5, 8, 3, 5));
  EXPECT_THAT(*t.encode("<s>", {.add_special = false, .parse_special = false}), ElementsAre(3, 0));
  EXPECT_EQ(t.decode(*t.encode("  x y")), "  x y");
}

TEST(GgufLlama, AddSpacePrefixCanBeOff) {
  GgufVocab vocab = tiny_llama();
  vocab.add_space_prefix = false;
  vocab.add_bos = false;
  const Tokenizer t = *Tokenizer::from_gguf(vocab);

  EXPECT_THAT(*t.encode("x x"), ElementsAre(4, 7));
  EXPECT_EQ(t.decode(Ids{7, 4}), " xx");
}

TEST(GgufBert, ReadsPiecesMarkedAtWordStarts) {
  const std::string m = "\xE2\x96\x81";
  const GgufVocab vocab{
      .model = "bert",
      .tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", m + "the", m + "un", "aff", "able", m + "!"},
      .token_types = {3, 2, 3, 3, 1, 1, 1, 1, 1},
      .unk = 1,
      .pad = 0,
      .sep = 3,
      .cls = 2};
  const Tokenizer t = *Tokenizer::from_gguf(vocab);

  EXPECT_THAT(*t.encode("The Unaffable! x"), ElementsAre(2, 4, 5, 6, 7, 8, 1, 3));
  EXPECT_EQ(t.decode(Ids{2, 4, 5, 6, 7, 8, 3}), "the unaffable!");
}

TEST(GgufT5, IsUnigramWithEos) {
  const std::string m = "\xE2\x96\x81";
  const GgufVocab vocab{.model = "t5",
                        .tokens = {"<pad>", "</s>", "<unk>", m, "a", m + "a", "b", "ab"},
                        .scores = {0, 0, 0, -2, -4, -3, -4, -6},
                        .token_types = {3, 3, 2, 1, 1, 1, 1, 1}};
  const Tokenizer t = *Tokenizer::from_gguf(vocab);

  EXPECT_THAT(*t.encode("  ab   a "), ElementsAre(5, 6, 5, 1)) << "extra spaces go";
  EXPECT_THAT(*t.encode("azza"), ElementsAre(5, 2, 4, 1));
}

TEST(Gguf, RefusesWhatItDoesNotKnowByName) {
  GgufVocab vocab{.model = "gpt2", .pre = "no-such-pre", .tokens = {"a"}};
  EXPECT_THAT(Tokenizer::from_gguf(vocab).error().what, HasSubstr("no-such-pre"));
  vocab.model = "rwkv";
  EXPECT_THAT(Tokenizer::from_gguf(vocab).error().what, HasSubstr("rwkv"));
  vocab = tiny_llama();
  vocab.scores.pop_back();
  EXPECT_THAT(Tokenizer::from_gguf(vocab).error().what, HasSubstr("scores"));
  vocab = tiny_llama();
  vocab.eos = 9;
  EXPECT_THAT(Tokenizer::from_gguf(vocab).error().what, HasSubstr("9"));
}

TEST(Gguf, EveryPreTokenizerCompiles) {
  for (const char* name :
       {"default",        "gpt-2",       "llama-bpe", "qwen2",      "qwen35",      "deepseek-llm",
        "deepseek-coder", "deepseek-v3", "falcon",    "mpt",        "starcoder",   "refact",
        "command-r",      "smollm",      "gpt-4o",    "tekken",     "chatglm-bpe", "granite",
        "kimi-k2",        "youtu",       "bloom",     "viking",     "bailingmoe",  "seed-coder",
        "minicpm5",       "tiny_aya",    "superbpe",  "exaone-moe", "chameleon",   "gemma4"}) {
    const tok::GgufPre* pre = tok::find_gguf_pre(name);
    ASSERT_NE(pre, nullptr) << name;
    for (const std::string_view pattern : pre->patterns)
      EXPECT_TRUE(tok::Regex::compile(pattern)) << name;
  }
}

}  // namespace
}  // namespace kvasir::text
