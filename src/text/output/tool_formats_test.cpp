// Every tool format (TXT-41…43): one call, two, nested JSON, quotes, unicode, cut at every byte,
// unknown tools, malformed and unfinished markup; markers as special tokens and as text.
#include <random>
#include <set>

#include "text/output/test_dialects.h"

namespace kvasir::text {
namespace {

class EveryFormat : public testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  const Dialect& dialect() const { return dialects()[std::get<0>(GetParam())]; }
  bool has_special_markers() const { return std::get<1>(GetParam()); }
  Tokenizer tokenizer() const {
    return byte_tokenizer(has_special_markers() ? markers_of(dialect()) : Strings());
  }
  Parsed parse(const std::string& text) const {
    return parse_text(tokenizer(), tool_options(dialect().format), text);
  }
  // Content before a call: harmony has it in a message of its own.
  std::string before(const std::string& text) const {
    if (dialect().format != ToolFormat::harmony) return text;
    return "<|channel|>commentary<|message|>" + text + "<|end|><|start|>assistant";
  }
  std::string after(const std::string& text) const {
    if (dialect().format != ToolFormat::harmony) return text;
    return "<|start|>assistant<|channel|>final<|message|>" + text + "<|return|>";
  }
  void expect_calls(const Parsed& parsed, const std::vector<Call>& calls) const {
    ASSERT_EQ(parsed.calls.size(), calls.size()) << "content: " << parsed.content;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(parsed.calls[i].name, calls[i].name);
      EXPECT_EQ(parsed.calls[i].arguments, calls[i].arguments);
    }
  }
};

const std::vector<Call> kOne{{"get_weather", R"({"city":"Oslo","days":3})"}};
const std::vector<Call> kTwo{{"get_weather", R"({"city":"Oslo","days":3})"},
                             {"get_weather", R"({"days":-1,"city":"Rome"})"}};

TEST_P(EveryFormat, OneCallIsParsedAndItsMarkupIsNoContent) {
  const Parsed parsed = parse(dialect().print(kOne));

  expect_calls(parsed, kOne);
  EXPECT_EQ(parsed.content, "");
  EXPECT_EQ(parsed.reasoning, "");
  const bool is_mistral = dialect().format == ToolFormat::mistral;
  EXPECT_EQ(parsed.calls.at(0).id.size(), is_mistral ? 9u : 29u);
  EXPECT_EQ(parsed.calls.at(0).id.starts_with("call_"), !is_mistral);
}

TEST_P(EveryFormat, TwoCallsAreNumberedAndHaveIdsOfTheirOwn_C31) {
  const Parsed parsed = parse(dialect().print(kTwo));

  expect_calls(parsed, kTwo);
  EXPECT_EQ(parsed.content, "");
  EXPECT_NE(parsed.calls.at(0).id, parsed.calls.at(1).id);
}

TEST_P(EveryFormat, ACallWithoutArgumentsHasAnEmptyObject) {
  const std::vector<Call> calls{{"now", "{}"}};
  expect_calls(parse(dialect().print(calls)), calls);
}

TEST_P(EveryFormat, NestedJsonQuotesAndUnicodeComeThrough) {
  const std::vector<Call> calls{
      {"get_weather",
       R"({"where":{"a":[1,2.5,{"b":null}],"c":{"d":[[],{}]}},"tags":["x","y z"],"metric":true})"},
      {"get_weather", R"({"city":"say \"hi\", it's {a: [1]} & <b> \\ /","days":0})"},
      {"get_weather", R"j({"city":"Zürich 東京 😀\nline, two)","tags":["é"]})j"}};
  expect_calls(parse(dialect().print(calls)), calls);
}

TEST_P(EveryFormat, ContentAroundCallsIsKept) {
  if (dialect().name == "llama3") return;  // the call is the whole message
  const std::string text = before("Let me see. ") + dialect().print(kOne) + after("Done < that.");

  const Parsed parsed = parse(text);

  expect_calls(parsed, kOne);
  EXPECT_EQ(parsed.content, "Let me see. Done < that.");
}

TEST_P(EveryFormat, OneTokenOrOneByteATimeIsTheSame) {
  const std::string text = before("A ") + dialect().print(kTwo) + after("B");
  const Parsed whole = parse(text);
  std::mt19937 rng(7);
  for (int round = 0; round < 8; ++round) {
    Strings chunks;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = round == 0 ? text.size() : 1 + rng() % 40;
      chunks.push_back(text.substr(at, n));
      at += n;
    }
    std::set<std::string> longer;
    for (const std::string& chunk : chunks) {
      if (chunk.size() > 1) longer.insert(chunk);
    }
    const Tokenizer t = byte_tokenizer({}, {longer.begin(), longer.end()});
    std::vector<TokenId> ids;
    for (const std::string& chunk : chunks) {
      ids.push_back(t.find(out::byte_level_spelling(chunk)).value());
    }

    const Parsed parsed = parse_ids(t, tool_options(dialect().format), ids);

    EXPECT_EQ(parsed.content, whole.content);
    ASSERT_EQ(parsed.calls.size(), whole.calls.size());
    for (std::size_t i = 0; i < whole.calls.size(); ++i) {
      EXPECT_EQ(parsed.calls[i].arguments, whole.calls[i].arguments);
      EXPECT_EQ(parsed.calls[i].id, whole.calls[i].id);
    }
  }
}

// TXT-43: whatever the cut, the call is whole or its raw text is content.
TEST_P(EveryFormat, CutAtEveryByteGivesTheCallOrItsRawText) {
  const std::vector<Call> calls{{"get_weather", R"({"city":"Zü 😀 \"q\"","where":{"a":[1]}})"}};
  const Tokenizer t = tokenizer();
  const std::vector<TokenId> ids = ids_of(t, dialect().print(calls));
  bool was_call = false;
  for (std::size_t n = 0; n <= ids.size(); ++n) {
    const std::vector<TokenId> cut(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));

    const Parsed parsed = parse_ids(t, tool_options(dialect().format), cut);

    const std::string raw = t.decode(cut, {.skip_special = false});
    if (parsed.calls.empty()) {
      // Harmony's call may end with the output, but not with half of a spelled marker.
      const bool may_vanish = dialect().format == ToolFormat::harmony && !has_special_markers();
      EXPECT_TRUE(!was_call || may_vanish);
      const bool is_header = dialect().format == ToolFormat::harmony && parsed.content.empty();
      if (is_header) continue;
      EXPECT_EQ(parsed.content, raw);
    } else {
      was_call = true;
      expect_calls(parsed, calls);
    }
  }
  EXPECT_TRUE(was_call);
}

TEST_P(EveryFormat, AnUnknownToolIsContent) {
  const std::string text = dialect().print({{"rm_rf", R"({"path":"/"})"}});

  const Parsed parsed = parse(text);

  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content, text);
}

TEST_P(EveryFormat, TheFirstCallEndsTheOutputWhenOnlyOneIsAllowed) {
  OutputOptions options = tool_options(dialect().format);
  options.parallel_tool_calls = false;

  const Parsed parsed = parse_text(tokenizer(), options, dialect().print(kTwo) + after("More"));

  expect_calls(parsed, kOne);
  EXPECT_TRUE(parsed.is_ended);
  EXPECT_EQ(parsed.content, "");
}

TEST_P(EveryFormat, WithoutToolsEverythingIsContent) {
  OutputOptions options = tool_options(dialect().format);
  options.tools.clear();
  const Tokenizer t = byte_tokenizer();
  const std::string text = dialect().print(kOne);

  const Parsed parsed = parse_text(t, options, text);

  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content, text);
}

// TXT-60, C32: whatever was withheld when a stop string hits comes out, the stop text cut.
TEST_P(EveryFormat, AStopStringInsideTheMarkupFlushesIt_C32) {
  OutputOptions options = tool_options(dialect().format);
  options.stops = {"XSTOP"};
  const std::string text = dialect().print({{"get_weather", R"({"city":"abcXSTOPdef"})"}});
  const Tokenizer t = tokenizer();

  const Parsed parsed = parse_text(t, options, text);

  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content, text.substr(0, text.find("XSTOP")));
  EXPECT_TRUE(parsed.is_ended);
  EXPECT_EQ(parsed.stop, "XSTOP");
}

// Spelled by the model's own words, a special token's text is no marker.
TEST_P(EveryFormat, TextThatSpellsASpecialTokenIsContent) {
  const bool is_harmony = dialect().format == ToolFormat::harmony;
  if (!has_special_markers() || dialect().name == "llama3" || is_harmony) return;
  const Tokenizer t = tokenizer();
  std::string text = dialect().print(kOne);
  std::vector<TokenId> ids;
  for (const char c : text) {
    ids.push_back(t.find(out::byte_level_spelling(std::string(1, c))).value());
  }

  const Parsed parsed = parse_ids(t, tool_options(dialect().format), ids);

  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content, text);
}

TEST_P(EveryFormat, RandomDamageNeverLosesText) {
  std::mt19937 rng(11);
  const Tokenizer t = tokenizer();
  const std::vector<TokenId> whole = ids_of(t, dialect().print(kTwo));
  for (int round = 0; round < 60; ++round) {
    std::vector<TokenId> ids = whole;
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(rng() % ids.size());
      if (rng() % 2 == 0) {
        ids.erase(ids.begin() + at);
      } else {
        // A half character would move behind the marker that follows it.
        const auto id = static_cast<TokenId>(rng() % t.vocab_size());
        ids.insert(ids.begin() + at, id < 256 ? id % 128 : id);
      }
    }

    const Parsed parsed = parse_ids(t, tool_options(dialect().format), ids);

    if (parsed.calls.empty() && dialect().format != ToolFormat::harmony) {
      EXPECT_EQ(parsed.content, t.decode(ids, {.skip_special = false}));
    }
    for (const ToolCall& call : parsed.calls) {
      EXPECT_TRUE(json::parse(call.arguments)) << call.arguments;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects,
                         EveryFormat,
                         testing::Combine(testing::Range(std::size_t{0}, dialects().size()),
                                          testing::Bool()),
                         [](const auto& which) {
                           std::string name = dialects()[std::get<0>(which.param)].name;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name + (std::get<1>(which.param) ? "_ids" : "_text");
                         });

TEST(ToolFormats, EveryFormatHasADialectHereAndItsNameParses) {
  for (const out::FormatSpec* spec : out::tool_formats()) {
    bool is_tested = false;
    for (const Dialect& d : dialects()) is_tested = is_tested || d.format == spec->format;
    EXPECT_TRUE(is_tested) << spec->name;
    EXPECT_EQ(*parse_tool_format(spec->name), spec->format);
    EXPECT_EQ(name_of(spec->format), spec->name);
    EXPECT_LE(spec->markers.size(), 32u);
  }
  EXPECT_EQ(*parse_tool_format("none"), ToolFormat::none);
  const auto unknown = parse_tool_format("nope");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().what.find("hermes"), std::string::npos);
}

}  // namespace
}  // namespace kvasir::text
