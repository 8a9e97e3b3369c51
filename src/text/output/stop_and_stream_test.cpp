// Streaming and stop strings (TXT-43, 60, 61; cases C01, C32) of the whole output parser.
#include <chrono>

#include "text/output/test_output.h"

namespace kvasir::text {
namespace {

const std::string kCall = "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>";

// What each pushed byte brings out.
Strings steps(const OutputOptions& options, const std::string& text) {
  const Tokenizer t = byte_tokenizer();
  auto parser = OutputParser::make(t, options);
  Strings out;
  const auto add = [&](const std::vector<OutputPiece>& pieces) {
    std::string all;
    for (const OutputPiece& p : pieces) {
      all += p.kind == OutputKind::tool_call ? "!" + p.call.name : p.text;
    }
    out.push_back(all);
  };
  for (const TokenId id : ids_of(t, text)) add(parser->push(id));
  add(parser->finish());
  return out;
}

TEST(OutputStream, ContentIsLiveAndMarkersAreHeldBackOnlyWhileTheyMayBeSome) {
  EXPECT_EQ(steps(tool_options(ToolFormat::hermes), "a<tb"), (Strings{"a", "", "", "<tb", ""}));
  EXPECT_EQ(steps(tool_options(ToolFormat::hermes), "a<to"), (Strings{"a", "", "", "", "<to"}));
}

TEST(OutputStream, ACallComesOutWithItsLastByte) {
  const Strings all = steps(tool_options(ToolFormat::hermes), "Hi" + kCall + "x");
  EXPECT_EQ(all[0] + all[1], "Hi");
  for (std::size_t i = 2; i + 3 < all.size(); ++i) EXPECT_EQ(all[i], "") << i;
  EXPECT_EQ(all[all.size() - 3], "!now");
  EXPECT_EQ(all[all.size() - 2], "x");
}

TEST(OutputStream, WhiteSpaceNextToCallsIsNoContentElsewhereItIs) {
  const OutputOptions options = tool_options(ToolFormat::hermes);
  const Tokenizer t = byte_tokenizer();
  EXPECT_EQ(parse_text(t, options, "\n\n" + kCall + "\n" + kCall + " \n").content, "");
  EXPECT_EQ(parse_text(t, options, "  hi \n" + kCall).content, "  hi \n");
  EXPECT_EQ(parse_text(t, options, kCall + "\n bye ").content, "\n bye ");
  EXPECT_EQ(parse_text(t, options, " \n ").content, " \n ");
  EXPECT_EQ(parse_text(t, options, " <tool_call>?").content, " <tool_call>?");
}

TEST(OutputStream, MentioningAMarkerDoesNotStallTheStream) {
  for (const ToolFormat format :
       {ToolFormat::hermes, ToolFormat::qwen_xml, ToolFormat::glm, ToolFormat::granite}) {
    const Strings all = steps(tool_options(format), "Use <tool_call> `tags` here");
    std::string before_end;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) before_end += all[i];
    EXPECT_EQ(before_end, "Use <tool_call> `tags` here");
  }
}

TEST(OutputStream, AfterABrokenCallTheNextOneIsParsed) {
  const OutputOptions options = tool_options(ToolFormat::hermes);
  const Parsed parsed =
      parse_text(byte_tokenizer(), options, "<tool_call>{\"name\": <tool_call>oops " + kCall);
  EXPECT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.content, "<tool_call>{\"name\": <tool_call>oops ");
}

TEST(OutputStream, InASectionABadCallIsContentAndTheGoodOnesAreCalls) {
  const auto call = [](const std::string& name) {
    return "<|tool_call_begin|>functions." + name +
           ":0<|tool_call_argument_begin|>{}<|tool_call_end|>";
  };
  const OutputOptions options = tool_options(ToolFormat::kimi);
  const Parsed parsed = parse_text(byte_tokenizer(), options,
                                   "<|tool_calls_section_begin|>" + call("now") + call("bad") +
                                       call("now") + "<|tool_calls_section_end|>");
  EXPECT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.content, call("bad"));
}

TEST(OutputStream, IdsDependOnTheSeedAndTheIndexOnly) {
  OutputOptions options = tool_options(ToolFormat::hermes);
  const Tokenizer t = byte_tokenizer();
  options.id_seed = 1;
  const std::string a = parse_text(t, options, kCall).calls.at(0).id;
  const std::string b = parse_text(t, options, "Hi" + kCall).calls.at(0).id;
  options.id_seed = 2;
  const std::string c = parse_text(t, options, kCall).calls.at(0).id;
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  for (const char character : a.substr(5)) {
    EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(character)));
  }
}

TEST(StopStrings, AreFoundAcrossTokensAndCutWithAllBehindThem) {
  OutputOptions options;
  options.stops = {"stop", "\n\n"};
  const Tokenizer t = byte_tokenizer();
  const Parsed parsed = parse_text(t, options, "abc sto stop def");
  EXPECT_EQ(parsed.content, "abc sto ");
  EXPECT_EQ(parsed.stop, "stop");
  EXPECT_TRUE(parsed.is_ended);
  EXPECT_EQ(parse_text(t, options, "abc sto").content, "abc sto");
}

TEST(StopStrings, NothingOfALongOneIsShownBeforeItIsComplete_C01) {
  OutputOptions options;
  options.stops = {"hree-fo"};
  const Strings all = steps(options, "one two three-four five");
  std::string shown;
  for (const std::string& step : all) {
    shown += step;
    EXPECT_TRUE(std::string_view("one two t").starts_with(shown)) << shown;
  }
  EXPECT_EQ(shown, "one two t");
}

TEST(StopStrings, OneThatEndsInsideATokenFires_C01) {
  const std::string token = " water";
  const Tokenizer t = byte_tokenizer({}, {token});
  const TokenId id = t.find(out::byte_level_spelling(token)).value();
  for (std::size_t n = 1; n <= token.size(); ++n) {
    OutputOptions options;
    options.stops = {token.substr(0, n)};
    const Parsed parsed = parse_ids(t, options, {'a', id, 'b'});
    EXPECT_EQ(parsed.content, "a");
    EXPECT_EQ(parsed.stop, options.stops[0]);
  }
}

TEST(StopStrings, AStopInsideOrAtTheBeginningOfTheMarkupGivesBackTheText_C32) {
  const Tokenizer t = byte_tokenizer();
  const auto content = [&](const std::string& stop) {
    OutputOptions options = tool_options(ToolFormat::hermes);
    options.stops = {stop};
    const Parsed parsed = parse_text(t, options, "Hi " + kCall + " tail");
    EXPECT_EQ(parsed.stop, stop);
    EXPECT_TRUE(parsed.calls.empty());
    return parsed.content;
  };
  EXPECT_EQ(content("<"), "Hi ");
  EXPECT_EQ(content("arguments"), "Hi <tool_call>{\"name\":\"now\",\"");
  EXPECT_EQ(content("</tool_call>"), "Hi <tool_call>{\"name\":\"now\",\"arguments\":{}}");
  EXPECT_EQ(content("call>"), "Hi <tool_");
}

TEST(StopStrings, AStopAfterACompleteCallLeavesTheCall) {
  OutputOptions options = tool_options(ToolFormat::hermes);
  options.stops = {"tail"};
  const Parsed parsed = parse_text(byte_tokenizer(), options, kCall + "\na tail");
  EXPECT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.content, "\na ");
  EXPECT_EQ(parsed.stop, "tail");
}

TEST(StopStrings, TooManyOrTooLongAreRefused) {
  OutputOptions options;
  options.stops = Strings(17, "x");
  EXPECT_FALSE(OutputParser::make(byte_tokenizer(), options));
  options.stops = {""};
  EXPECT_FALSE(OutputParser::make(byte_tokenizer(), options));
}

TEST(OutputStream, SpecialTokensWithoutMeaningHaveNoText) {
  const Tokenizer t = byte_tokenizer({"<|im_end|>", "<tool_call>", "</tool_call>"});
  const Parsed parsed =
      parse_text(t, tool_options(ToolFormat::hermes), "a<|im_end|>" + kCall + "b<|im_end|>");
  EXPECT_EQ(parsed.content, "ab");
  EXPECT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parse_ids(t, {}, {0xC3, t.find("<|im_end|>").value(), 0xA9}).content, "é");
  EXPECT_EQ(parse_ids(t, {}, {'a', 100000, 'b'}).content, "ab") << "unknown ids add nothing";
}

// Hostile output costs linear time: openers, partial markers and open strings without end.
TEST(OutputStream, LongHostileOutputIsFast) {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [format, unit] : std::vector<std::pair<ToolFormat, std::string>>{
           {ToolFormat::hermes, "<tool_call>{\"a\":\""},
           {ToolFormat::hermes, "<tool_call"},
           {ToolFormat::llama3, "{\"name\":"},
           {ToolFormat::minicpm, "<![CDATA["},
           {ToolFormat::gemma4, "<|tool_call>call:now{"},
           {ToolFormat::lfm2, "<|tool_call_start|>["},
           {ToolFormat::deepseek, "<｜tool▁sep｜>"}}) {
    std::string text;
    while (text.size() < 100000) text += unit;
    const Parsed parsed = parse_text(byte_tokenizer(), tool_options(format), text);
    EXPECT_EQ(parsed.content, text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace kvasir::text
