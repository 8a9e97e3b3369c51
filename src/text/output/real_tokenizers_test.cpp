// The output parser with real vocabularies: markers that are special tokens, added tokens that
// are not, and plain text, in tokens of any length.
#include <filesystem>

#include "text/output/test_output.h"

namespace kvasir::text {
namespace {

std::optional<Tokenizer> real_tokenizer(const std::string& name) {
  const auto folder = std::filesystem::path(KVASIR_SHARED) / "tokenizers" / name;
  if (!std::filesystem::exists(folder)) return std::nullopt;
  auto out = Tokenizer::from_folder(folder);
  if (out) return *std::move(out);
  ADD_FAILURE() << out.error().what;
  return std::nullopt;
}

OutputOptions options_of(ToolFormat tools, ReasoningFormat reasoning) {
  OutputOptions options = tool_options(tools);
  options.format.reasoning = reasoning;
  return options;
}

TEST(RealTokenizers, Qwen3ThinksAndCalls) {
  const auto t = real_tokenizer("qwen3");
  if (!t) GTEST_SKIP() << "no shared folder";
  const Parsed parsed = parse_text(
      *t, options_of(ToolFormat::hermes, ReasoningFormat::think),
      "<think>\nÜber 東京 😀?\n</think>\n\nOk.\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": "
      "{\"city\": \"東京 😀\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
      "\"arguments\": {}}\n</tool_call><|im_end|>");
  EXPECT_EQ(parsed.reasoning, "\nÜber 東京 😀?\n");
  EXPECT_EQ(parsed.content, "Ok.\n");
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.calls[0].arguments, "{\"city\":\"東京 😀\",\"days\":2}");
}

TEST(RealTokenizers, Qwen3CoderWritesTags) {
  const auto t = real_tokenizer("qwen3");
  if (!t) GTEST_SKIP() << "no shared folder";
  const Parsed parsed =
      parse_text(*t, options_of(ToolFormat::qwen_xml, ReasoningFormat::none),
                 "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
                 "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments, R"({"city":"New\nYork","days":2})");
  EXPECT_EQ(parsed.content, "");
}

TEST(RealTokenizers, DeepSeekCallsInBothDialects) {
  const auto t = real_tokenizer("deepseek_v3");
  if (!t) GTEST_SKIP() << "no shared folder";
  const OutputOptions options = options_of(ToolFormat::deepseek, ReasoningFormat::think);
  const Parsed parsed = parse_text(
      *t, options,
      "<think>a</"
      "think>Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
      "```json\n{\"city\": "
      "\"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>");
  EXPECT_EQ(parsed.reasoning, "a");
  EXPECT_EQ(parsed.content, "Sure.");
  EXPECT_EQ(parsed.calls.size(), 2u);
}

TEST(RealTokenizers, GptOssSpeaksHarmony) {
  const auto t = real_tokenizer("gptoss");
  if (!t) GTEST_SKIP() << "no shared folder";
  const OutputOptions options = options_of(ToolFormat::harmony, ReasoningFormat::harmony);
  const Parsed parsed = parse_text(
      *t, options,
      "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>");
  EXPECT_EQ(parsed.reasoning, "Look it up.");
  EXPECT_EQ(parsed.content, "");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments, R"({"city":"Oslo"})");
}

TEST(RealTokenizers, SpelledHarmonyMarkersAreText) {
  const auto t = real_tokenizer("gptoss");
  if (!t) GTEST_SKIP() << "no shared folder";
  const OutputOptions options = options_of(ToolFormat::harmony, ReasoningFormat::harmony);
  const std::string text = "Write <|channel|>analysis<|message|> first, then <|end|>.";
  std::vector<TokenId> ids = ids_of(*t, "<|channel|>final<|message|>");
  const auto plain = t->encode(text, {.add_special = false, .parse_special = false});
  ids.insert(ids.end(), plain->begin(), plain->end());
  EXPECT_EQ(parse_ids(*t, options, ids).content, text);
}

TEST(RealTokenizers, LlamaCallsAsJsonAndEndsWithASpecialToken) {
  const auto t = real_tokenizer("llama3");
  if (!t) GTEST_SKIP() << "no shared folder";
  const OutputOptions options = options_of(ToolFormat::llama3, ReasoningFormat::none);
  const Parsed parsed = parse_text(
      *t, options, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}<|eot_id|>");
  EXPECT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.content, "");
}

TEST(RealTokenizers, LeadingSpaceRulesOfSentencePieceHold) {
  const auto t = real_tokenizer("llama2");
  if (!t) GTEST_SKIP() << "no shared folder";
  const OutputOptions options = options_of(ToolFormat::mistral, ReasoningFormat::none);
  const auto ids =
      t->encode("Hi 😀[TOOL_CALLS]get_weather[ARGS]{\"city\": \"a  b\"}", {.add_special = false});
  const Parsed parsed = parse_ids(*t, options, *ids);
  EXPECT_EQ(parsed.content, "Hi 😀");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments, R"({"city":"a  b"})");
}

}  // namespace
}  // namespace kvasir::text
