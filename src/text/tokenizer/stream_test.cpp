// Streaming detokenization (TXT-15…18): whatever the split, the text is that of decoding everything
// at once.
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer/test_tokenizers.h"

namespace kvasir::text {
namespace {

using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

std::string streamed(const Tokenizer& t, const Ids& ids, const DecodeOptions& options = {}) {
  Detokenizer stream(t, options);
  std::string out;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    out += piece;
  }
  return out + stream.finish();
}

TEST(Detokenizer, EqualsDecodeForRandomIdsOfEveryMadeTokenizer) {
  std::mt19937 rng(20240607);
  for (const auto& entry : fs::directory_iterator(fs::path(KVASIR_TEST_DATA) / "tokenizers/made")) {
    const auto t = Tokenizer::from_folder(entry.path());
    ASSERT_TRUE(t) << t.error().what;
    std::uniform_int_distribution<TokenId> any(0, static_cast<TokenId>(t->vocab_size()));
    for (int round = 0; round < 20; ++round) {
      Ids ids(static_cast<std::size_t>(round));
      for (TokenId& id : ids) id = any(rng);
      for (const bool skip : {false, true}) {
        for (const bool is_start : {false, true}) {
          const DecodeOptions options{.skip_special = skip, .is_start = is_start};
          EXPECT_EQ(streamed(*t, ids, options), t->decode(ids, options)) << entry.path();
        }
      }
    }
  }
}

TEST(Detokenizer, KeepsLeadingAndDoubleSpaces_C07) {
  const Tokenizer bytes = made_tokenizer("dec-byte-level");
  const Tokenizer spm = made_tokenizer("spm-bpe-bytes");
  for (const std::string text : {"  x y", " x", "  ", "a  b ", "x"}) {
    const Ids byte_ids = *bytes.encode(text);
    EXPECT_EQ(streamed(bytes, byte_ids), text);
    EXPECT_EQ(bytes.decode(byte_ids), text);
    const Ids spm_ids = *spm.encode(text);
    EXPECT_EQ(streamed(spm, spm_ids), text);
    EXPECT_EQ(spm.decode(spm_ids), text);
    const DecodeOptions goes_on{.is_start = false};
    EXPECT_EQ(streamed(spm, *spm.encode(text, {.add_special = false}), goes_on), " " + text)
        << "nothing is dropped inside a text";
  }
}

TEST(Detokenizer, GivesTextAsSoonAsItIsCertain) {
  const Tokenizer t = made_tokenizer("dec-byte-level");
  const Ids ids = *t.encode("\xE2\x82\xAC!");  // three bytes, then one
  ASSERT_EQ(ids.size(), 4u);
  Detokenizer stream(t);

  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.push(ids[2]), "\xE2\x82\xAC");
  EXPECT_EQ(stream.push(ids[3]), "!");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Detokenizer, BrokenCharactersBecomeOneReplacementAMaximalSubpart_TXT16) {
  const Tokenizer t = made_tokenizer("bpe-words");  // ids of bytes: their values
  const auto byte = [&](int b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    return *t.find(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">");
  };
  const std::string bad = "\xEF\xBF\xBD";

  EXPECT_EQ(streamed(t, {byte(0xE2), byte(0x82), byte('a')}), bad + "a");
  EXPECT_EQ(streamed(t, {byte(0xF0), byte(0x9F), byte(0x98)}), bad) << "finish flushes the rest";
  EXPECT_EQ(streamed(t, {byte(0xC3), byte(0xA9), byte(0xFF), byte(0x80)}), "\xC3\xA9" + bad + bad);
}

TEST(Detokenizer, SkippedTokensDoNotBreakACharacter_TXT18) {
  const Tokenizer t = made_tokenizer("dec-byte-level");
  Ids ids = *t.encode("\xE2\x82\xAC");
  ASSERT_EQ(ids.size(), 3u);
  const TokenId special = *t.find("<a>");
  ASSERT_TRUE(t.is_special(special));
  ids.insert(ids.begin() + 1, special);

  EXPECT_EQ(streamed(t, ids), "\xE2\x82\xAC");
  EXPECT_EQ(streamed(t, ids, {.skip_special = false}), "\xEF\xBF\xBD<a>\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, TokenBytesAreWhatATokenAddsInsideAText) {
  const Tokenizer bytes = made_tokenizer("dec-byte-level");
  const Tokenizer words = made_tokenizer("bpe-words");
  const Tokenizer pieces = made_tokenizer("word-piece");

  EXPECT_EQ(bytes.token_bytes(bytes.encode("\xE2\x82\xAC")->at(0)), "\xE2");
  EXPECT_EQ(words.token_bytes(*words.find("<0x82>")), "\x82");
  EXPECT_EQ(words.token_bytes(*words.find("\xE2\x96\x81the")), " the");
  EXPECT_EQ(pieces.token_bytes(*pieces.find("##able")), "able");
  EXPECT_EQ(pieces.token_bytes(*pieces.find("quick")), " quick");
  EXPECT_EQ(pieces.token_bytes(99999), "");
}

}  // namespace
}  // namespace kvasir::text
