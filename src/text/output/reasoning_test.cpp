// Reasoning (TXT-50, 51): every family, open at the start, unclosed, white space, cut at each byte.
#include "text/output/test_dialects.h"

namespace kvasir::text {
namespace {

struct Family {
  ReasoningFormat format;
  std::string open, close;
};

const std::vector<Family> kFamilies{
    {ReasoningFormat::think, "<think>", "</think>"},
    {ReasoningFormat::think, "<|START_THINKING|>", "<|END_THINKING|>"},
    {ReasoningFormat::think, "<seed:think>", "</seed:think>"},
    {ReasoningFormat::bracket_think, "[THINK]", "[/THINK]"},
    {ReasoningFormat::gemma, "<|channel>thought\n", "<channel|>"},
    {ReasoningFormat::granite, "<think>", "</think>"}};

Tokenizer tokenizer_of(const Family& f, bool is_special) {
  if (!is_special) return byte_tokenizer();
  const bool is_gemma = f.format == ReasoningFormat::gemma;
  return byte_tokenizer({is_gemma ? "<|channel>" : f.open, f.close});
}

class EveryFamily : public testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  const Family& family() const { return kFamilies[std::get<0>(GetParam())]; }
  Parsed parse(const std::string& text, bool starts_open = false) const {
    OutputOptions options = reasoning_options(family().format);
    options.starts_in_reasoning = starts_open;
    return parse_text(tokenizer_of(family(), std::get<1>(GetParam())), options, text);
  }
};

TEST_P(EveryFamily, SplitsAtTheMarkersAndDropsTheSpaceBehind) {
  for (const std::string before : {"", "\n", " \n\t "}) {
    const Parsed parsed =
        parse(before + family().open + " let me 😀\nthink\n" + family().close + "\n\n  Hello ");
    EXPECT_EQ(parsed.reasoning, " let me 😀\nthink\n");
    EXPECT_EQ(parsed.content, "Hello ");
  }
}

TEST_P(EveryFamily, StartsOpenWhenThePromptDid) {
  const Parsed parsed = parse("so\n" + family().close + "\nYes", /*starts_open=*/true);
  EXPECT_EQ(parsed.reasoning, "so\n");
  EXPECT_EQ(parsed.content, "Yes");
}

TEST_P(EveryFamily, UnclosedIsAllReasoning) {
  const std::string text = "hm </thin [/TH <chan and so on";
  EXPECT_EQ(parse(family().open + text).reasoning, text);
  EXPECT_EQ(parse(text, /*starts_open=*/true).reasoning, text);
  EXPECT_EQ(parse(text, /*starts_open=*/true).content, "");
}

TEST_P(EveryFamily, OnlyTheStartOfTheOutputOpensReasoning) {
  const bool is_special = std::get<1>(GetParam());
  if (is_special) return;  // a special token elsewhere has no text
  const std::string text = "I say " + family().open + "x" + family().close + " y";
  EXPECT_EQ(parse(text).content, text);
  EXPECT_EQ(parse(text).reasoning, "");
}

TEST_P(EveryFamily, AfterOneBlockAnotherIsContent) {
  if (std::get<1>(GetParam())) return;
  const std::string block = family().open + "a" + family().close;
  EXPECT_EQ(parse(block + block).reasoning, "a");
  EXPECT_EQ(parse(block + block).content, block);
}

TEST_P(EveryFamily, EveryCutGivesAPrefixOfEachPart) {
  const Tokenizer t = tokenizer_of(family(), std::get<1>(GetParam()));
  const std::vector<TokenId> ids =
      ids_of(t, " " + family().open + "wé < [ think" + family().close + "\n\nOk </é");
  const Parsed whole = parse_ids(t, reasoning_options(family().format), ids);
  ASSERT_EQ(whole.reasoning, "wé < [ think");
  ASSERT_EQ(whole.content, "Ok </é");
  auto parser = OutputParser::make(t, reasoning_options(family().format));
  std::string reasoning, content;
  const auto take = [&](const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) {
      (piece.kind == OutputKind::reasoning ? reasoning : content) += piece.text;
    }
  };
  for (const TokenId id : ids) {
    take(parser->push(id));
    EXPECT_TRUE(whole.reasoning.starts_with(reasoning)) << reasoning;
    EXPECT_TRUE(whole.content.starts_with(content)) << content;
  }
  take(parser->finish());
  EXPECT_EQ(reasoning, whole.reasoning);
  EXPECT_EQ(content, whole.content);
}

TEST_P(EveryFamily, UnsplitReasoningStaysInTheContentWithItsMarkers) {
  OutputOptions options = reasoning_options(family().format);
  options.splits_reasoning = false;
  options.stops = {"STOP"};
  const std::string text = "\n" + family().open + "a STOP b" + family().close + "\n\nHi STOP more";
  const Parsed parsed = parse_text(tokenizer_of(family(), std::get<1>(GetParam())), options, text);
  EXPECT_EQ(parsed.content, text.substr(0, text.rfind("STOP")));
  EXPECT_EQ(parsed.reasoning, "");
  EXPECT_EQ(parsed.stop, "STOP");
}

TEST_P(EveryFamily, AStopStringInsideReasoningIsIgnored_C32) {
  OutputOptions options = reasoning_options(family().format);
  options.stops = {"END", "d\nY"};
  const Tokenizer t = tokenizer_of(family(), std::get<1>(GetParam()));
  const Parsed parsed =
      parse_text(t, options, family().open + "the END and" + family().close + "\nYes END no");
  EXPECT_EQ(parsed.reasoning, "the END and");
  EXPECT_EQ(parsed.content, "Yes ");
  EXPECT_EQ(parsed.stop, "END");
}

INSTANTIATE_TEST_SUITE_P(Families,
                         EveryFamily,
                         testing::Combine(testing::Range(std::size_t{0}, kFamilies.size()),
                                          testing::Bool()));

TEST(Reasoning, TokensBetweenTheMarkersAreCounted) {
  const Tokenizer t = byte_tokenizer({"<think>", "</think>"});
  const OutputOptions options = reasoning_options(ReasoningFormat::think);
  EXPECT_EQ(parse_text(t, options, "<think>12345</think>abc").n_reasoning, 5u);
  EXPECT_EQ(parse_text(t, options, "abc").n_reasoning, 0u);
  OutputOptions open = options;
  open.starts_in_reasoning = true;
  EXPECT_EQ(parse_text(t, open, "123</think>abc").n_reasoning, 3u);
}

TEST(Reasoning, ASpecialMarkerDoesNotBreakAPendingCharacter) {
  const Tokenizer t = byte_tokenizer({"<think>", "</think>"});
  const TokenId close = t.find("</think>").value();
  OutputOptions options = reasoning_options(ReasoningFormat::think);
  options.starts_in_reasoning = true;
  const Parsed parsed = parse_ids(t, options, {0xE2, close, 0x82, 0xAC, '!'});
  EXPECT_EQ(parsed.content, "€!");
}

TEST(Reasoning, SpelledMarkersOfASpecialTokenAreText) {
  const Tokenizer t = byte_tokenizer({"<think>", "</think>"});
  std::vector<TokenId> ids{t.find("<think>").value()};
  for (const char c : std::string("say </think> now")) ids.push_back(static_cast<TokenId>(c));
  ids.push_back(t.find("</think>").value());
  ids.push_back('k');
  const Parsed parsed = parse_ids(t, reasoning_options(ReasoningFormat::think), ids);
  EXPECT_EQ(parsed.reasoning, "say </think> now");
  EXPECT_EQ(parsed.content, "k");
}

TEST(Reasoning, GranitesResponseTagsGoAway) {
  const OutputOptions options = reasoning_options(ReasoningFormat::granite);
  const Tokenizer t = byte_tokenizer();
  EXPECT_EQ(parse_text(t, options, "<think>a</think>\n<response>Hi </b></response>\n").content,
            "Hi </b>\n");
  EXPECT_EQ(parse_text(t, options, "<response>Hi</response>").content, "Hi");
  EXPECT_EQ(parse_text(t, options, "<think>a</think><respond>").content, "<respond>");
  EXPECT_EQ(parse_text(t, options, "<think>a</think> <resp").content, "<resp");
}

TEST(Reasoning, ToolMarkersInsideReasoningAreReasoning) {
  OutputOptions options = tool_options(ToolFormat::hermes);
  options.format.reasoning = ReasoningFormat::think;
  const std::string call = "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>";
  for (const Tokenizer& t :
       {byte_tokenizer(), byte_tokenizer({"<think>", "</think>", "<tool_call>", "</tool_call>"})}) {
    const Parsed parsed = parse_text(t, options, "<think>I use " + call + "</think>\n\n" + call);
    EXPECT_EQ(parsed.reasoning, "I use " + call);
    EXPECT_EQ(parsed.calls.size(), 1u);
    EXPECT_EQ(parsed.content, "");
  }
}

OutputOptions harmony_options() {
  OutputOptions options = tool_options(ToolFormat::harmony);
  options.format.reasoning = ReasoningFormat::harmony;
  return options;
}

TEST(Harmony, ChannelsBecomeReasoningContentAndCalls) {
  const std::string text =
      "<|channel|>analysis<|message|>think <b><|end|><|start|>assistant<|channel|>commentary"
      "<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
      "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>analysis<|message|>, more"
      "<|end|><|start|>assistant<|channel|>final<|message|> Done.<|return|>";
  for (const Tokenizer& t : {byte_tokenizer(kHarmonyMarkers), byte_tokenizer()}) {
    const Parsed parsed = parse_text(t, harmony_options(), text);
    EXPECT_EQ(parsed.reasoning, "think <b>, more");
    EXPECT_EQ(parsed.content, "Let me look. Done.");
    EXPECT_EQ(parsed.calls.size(), 1u);
  }
}

TEST(Harmony, StartsInAnOpenChannelOrWithPlainText) {
  OutputOptions options = harmony_options();
  const Tokenizer t = byte_tokenizer(kHarmonyMarkers);
  EXPECT_EQ(parse_text(t, options, "Hello to=you").content, "Hello to=you");
  EXPECT_EQ(parse_text(t, options, "to").content, "to");
  options.starts_in_reasoning = true;
  const Parsed parsed =
      parse_text(t, options, "hm<|end|><|start|>assistant<|channel|>final<|message|>Hi");
  EXPECT_EQ(parsed.reasoning, "hm");
  EXPECT_EQ(parsed.content, "Hi");
}

TEST(Harmony, AnotherRecipientOrAnEndlessHeaderIsContent) {
  const Tokenizer t = byte_tokenizer(kHarmonyMarkers);
  const std::string browser = "<|channel|>commentary to=browser.open<|message|>{\"id\":1}<|call|>";
  EXPECT_EQ(parse_text(t, harmony_options(), browser).content, browser);
  const std::string endless = "<|channel|>" + std::string(600, 'x');
  EXPECT_EQ(parse_text(t, harmony_options(), endless).content, endless);
}

TEST(Harmony, UnsplitReasoningKeepsItsMarkers) {
  OutputOptions options = harmony_options();
  options.splits_reasoning = false;
  const Parsed parsed = parse_text(byte_tokenizer(kHarmonyMarkers), options,
                                   "<|channel|>analysis<|message|>a<|end|><|start|>assistant"
                                   "<|channel|>final<|message|>b<|return|>");
  EXPECT_EQ(parsed.content, "<|channel|>analysis<|message|>a<|end|>b");
}

TEST(Harmony, StopStringsWatchTheFinalChannelOnly) {
  OutputOptions options = harmony_options();
  options.stops = {"xy"};
  const Parsed parsed = parse_text(byte_tokenizer(kHarmonyMarkers), options,
                                   "<|channel|>analysis<|message|>xy<|end|><|start|>assistant"
                                   "<|channel|>final<|message|>axyb<|return|>");
  EXPECT_EQ(parsed.reasoning, "xy");
  EXPECT_EQ(parsed.content, "a");
  EXPECT_EQ(parsed.stop, "xy");
}

TEST(StartsInReasoning, WhenThePromptEndsInsideAnOpenBlock) {
  using enum ReasoningFormat;
  EXPECT_TRUE(starts_in_reasoning(think, "<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(starts_in_reasoning(think, "<|im_start|>assistant\n<think>\nSo far I"));
  EXPECT_FALSE(starts_in_reasoning(think, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(starts_in_reasoning(think, "<|im_start|>assistant\n"));
  EXPECT_FALSE(starts_in_reasoning(
      think, "<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n"))
      << "C16: a user's marker opens nothing";
  EXPECT_TRUE(starts_in_reasoning(
      think, "<|im_start|>user\nwhat is </think>?<|im_end|>\n<|im_start|>assistant\n<think>"));
  EXPECT_TRUE(starts_in_reasoning(think, "<|CHATBOT_TOKEN|><|START_THINKING|>"));
  EXPECT_TRUE(starts_in_reasoning(bracket_think, "[/INST][THINK]"));
  EXPECT_FALSE(starts_in_reasoning(bracket_think, "[INST][THINK][/INST]"));
  EXPECT_TRUE(starts_in_reasoning(gemma, "<|turn>model\n<|channel>thought\n"));
  EXPECT_FALSE(starts_in_reasoning(gemma, "<|turn>model\n<|channel>thought\n<channel|>"));
  EXPECT_TRUE(starts_in_reasoning(harmony, "<|start|>assistant<|channel|>analysis<|message|>a"));
  EXPECT_FALSE(starts_in_reasoning(harmony, "<|start|>assistant"));
  EXPECT_TRUE(starts_in_reasoning(granite, "<|end_of_role|><think>"));
  EXPECT_FALSE(starts_in_reasoning(none, "<think>"));
}

}  // namespace
}  // namespace kvasir::text
