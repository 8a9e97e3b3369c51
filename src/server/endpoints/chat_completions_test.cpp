// /v1/chat/completions and /v1/completions: requests as they are read, answers as bytes
// (SRV-30…34).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/testing/answers.h"
#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::unique_ptr<ApiFormat> format_of(PlanFn plan_of, ServerState& state, std::string_view body) {
  PlanOrError plan = plan_of(state, parsed(body));
  return std::move(std::get<Plan>(plan).format);
}

std::vector<json::Value> chunks_of(std::string_view stream) {
  std::vector<json::Value> out;
  for (std::size_t at = 0; (at = stream.find("data: {", at)) != stream.npos; ++at) {
    const std::size_t end = stream.find("\n\n", at);
    out.push_back(parsed(stream.substr(at + 6, end - at - 6)));
  }
  return out;
}

const json::Value& first_choice(const json::Value& chunk) {
  return chunk.find("choices")->as_array()->front();
}

std::string stream_of(ApiFormat& format, const Script& script) {
  Transcript transcript = start_of_answer();
  std::string out;
  format.begin(transcript, out);
  for (const text::OutputPiece& piece : script.pieces) {
    StreamEvent event;
    event.pieces = {piece};
    append_block(transcript.choices[0], piece);
    format.event(transcript, event, out);
  }
  transcript.choices[0].end = end_of(script);
  StreamEvent last;
  last.is_end = true;
  format.event(transcript, last, out);
  format.finish(transcript, out);
  return out;
}

constexpr const char* kChat = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

TEST(ChatCompletions, AStreamHasTheOrderOfSrv32) {
  TinyState tiny;
  const auto format = format_of(plan_chat_completion, tiny.state, kChat);
  const std::string stream = stream_of(
      *format, {{thought("hm"), said("Hello"), called("f", "{\"a\":1}")}, "tool_calls", {}});
  const auto chunks = chunks_of(stream);
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(json::write(*first_choice(chunks[0]).find("delta")),
            R"({"role":"assistant","content":""})");
  EXPECT_EQ(json::write(*first_choice(chunks[1]).find("delta")), R"({"reasoning":"hm"})");
  EXPECT_EQ(json::write(*first_choice(chunks[2]).find("delta")), R"({"content":"Hello"})");
  EXPECT_EQ(
      json::write(*first_choice(chunks[3]).find("delta")),
      R"({"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]})");
  EXPECT_EQ(json::write(*first_choice(chunks[4]).find("delta")), "{}");
  EXPECT_EQ(first_choice(chunks[4]).string_or("finish_reason", ""), "tool_calls");
  EXPECT_NE(chunks[4].find("usage"), nullptr);
  EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n"));
}

TEST(ChatCompletions, ACallComesAsItsNameAndPiecesOfItsArgumentsWhenAsked_SRV_32) {
  TinyState tiny;
  tiny.state.options.streams_tool_arguments = true;
  const std::string arguments =
      "{\"a\":\"" + std::string(61, 'x') + "😀" + std::string(90, 'y') + "\"}";
  const auto format = format_of(plan_chat_completion, tiny.state, kChat);

  const auto chunks = chunks_of(stream_of(*format, {{called("f", arguments)}, "tool_calls", {}}));

  ASSERT_EQ(chunks.size(), 6u);  // role, name, three pieces, end
  EXPECT_EQ(
      json::write(*first_choice(chunks[1]).find("delta")),
      R"({"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"f","arguments":""}}]})");
  std::string joined;
  for (std::size_t i = 2; i < 5; ++i) {
    const json::Value& call =
        first_choice(chunks[i]).find("delta")->find("tool_calls")->as_array()->front();
    EXPECT_EQ(call.find("id"), nullptr);
    EXPECT_EQ(call.int_or("index", -1), 0);
    joined += call.find("function")->string_or("arguments", "");
  }
  EXPECT_EQ(joined, arguments);
}

TEST(ChatCompletions, AfterItsBudgetOfReasoningTheModelMustAnswer_TXT_52) {
  TinyState tiny;
  GenerateRequest request = request_of(plan_chat_completion, tiny.state, R"({
      "messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"<think>hm"}],
      "continue_final_message":true,"max_tokens":9,"temperature":0,"ignore_eos":true})");
  request.reasoning_budget = 3;

  const auto generated = tiny_engine().generate(request, {});

  ASSERT_TRUE(generated) << generated.error().what;
  const std::vector<TokenId>& tokens = generated->choices[0].tokens;
  ASSERT_EQ(tokens.size(), 9u);
  EXPECT_EQ(tiny_engine().token_piece(tokens[3]), "</think>");
}

TEST(ChatCompletions, UsageHasItsOwnChunkOnlyWhenAsked_C30) {
  TinyState tiny;
  const auto asked = format_of(
      plan_chat_completion, tiny.state,
      R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}})");
  const auto chunks = chunks_of(stream_of(*asked, {{said("a")}}));
  ASSERT_EQ(chunks.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_NE(chunks[i].find("usage"), nullptr);
    EXPECT_TRUE(chunks[i].find("usage")->is_null());
  }
  EXPECT_TRUE(chunks[3].find("choices")->as_array()->empty());
  EXPECT_EQ(chunks[3].find("usage")->int_or("total_tokens", 0), 15);

  const auto silent = format_of(plan_chat_completion, tiny.state, kChat);
  for (const json::Value& chunk : chunks_of(stream_of(*silent, {{said("a")}})))
    EXPECT_FALSE(chunk.find("choices")->as_array()->empty());
}

TEST(ChatCompletions, AnErrorInAStreamEndsItWithoutDone_SRV_34) {
  TinyState tiny;
  const auto format = format_of(plan_chat_completion, tiny.state, kChat);
  ApiError error;
  error.status = 500;
  error.code = "numeric_error";
  error.message = "non-finite logits";
  std::string out;
  format->error(error, out);
  EXPECT_EQ(out,
            "data: {\"error\":{\"message\":\"non-finite logits\",\"type\":\"server_error\","
            "\"code\":\"numeric_error\",\"param\":null}}\n\n");
}

TEST(ChatCompletions, FieldsAreCheckedAndNamed_SRV_2) {
  TinyState tiny;
  const auto refusal = [&](std::string_view fields) {
    std::string body = R"({"messages":[{"role":"user","content":"hi"}],)";
    body += std::string(fields) + "}";
    return refusal_of(plan_chat_completion, tiny.state, body);
  };
  EXPECT_EQ(refusal(R"("n":9)").message, "n must be at most 8");
  EXPECT_EQ(refusal(R"("n":true)").message, "n must be of type int");
  EXPECT_EQ(refusal(R"("temperature":"x")").param, "temperature");
  EXPECT_EQ(refusal(R"("logit_bias":{"99999999":1})").status, 400);
  EXPECT_EQ(refusal(R"("stop":[1])").message, "stop must be a string or a list of strings");
  EXPECT_EQ(refusal(R"("tools":[{}])").message, "tools[0] must be an object with a function");
  EXPECT_EQ(refusal(R"("adapter":"x")").code, "adapter_not_found");
  EXPECT_EQ(refusal(R"("timeout_ms":0)").message, "timeout_ms must be at least 1");
  EXPECT_EQ(refusal(R"("guided_regex":"a")").param, "guided_regex");
  EXPECT_EQ(refusal_of(plan_chat_completion, tiny.state, R"({"messages":[]})").message,
            "messages must be a non-empty array");
}

TEST(ChatCompletions, ToolChoiceNoneShowsNoTools_TXT_44) {
  TinyState tiny;
  constexpr const char* kBody =
      R"({"messages":[{"role":"user","content":"hi"}],"tool_choice":%s,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]})";
  const auto with = [&](std::string_view choice) {
    std::string body = kBody;
    body.replace(body.find("%s"), 2, choice);
    return request_of(plan_chat_completion, tiny.state, body).tools;
  };
  EXPECT_EQ(with("\"auto\"").size(), 2u);
  EXPECT_TRUE(with("\"none\"").empty());
  EXPECT_EQ(with(R"({"type":"function","function":{"name":"g"}})").size(), 1u);
}

// A chat of one user with two tools and these fields.
PlanOrError plan_with_tools(TinyState& tiny, std::string_view fields) {
  std::string body = R"({"messages":[{"role":"user","content":"hi"}],"tools":[
      {"type":"function","function":{"name":"f","strict":true}},
      {"type":"function","function":{"name":"g"}}],)";
  return plan_chat_completion(tiny.state, parsed(body + std::string(fields) + "}"));
}

TEST(ChatCompletions, AChoiceThatNobodyEnforcesIsAskedForAndSaysSo_SAMP_52_55) {
  TinyState tiny;
  const auto required = plan_with_tools(tiny, R"("tool_choice":"required")");
  const auto named =
      plan_with_tools(tiny, R"("tool_choice":{"type":"function","function":{"name":"g"}})");

  const Plan& one = std::get<Plan>(required);
  EXPECT_THAT(
      one.warnings,
      testing::ElementsAre("grammar not enforced: tool_choice required was added as an instruction",
                           "grammar not enforced: arguments of strict tools are not constrained"));
  EXPECT_EQ(one.requests[0].messages[0].string_or("content", ""),
            "Answer with a call of one of the tools.");
  EXPECT_EQ(one.requests[0].template_variables.find("tool_choice")->as_string()[0], "required");
  const Plan& other = std::get<Plan>(named);
  EXPECT_EQ(other.warnings.size(), 1u);
  EXPECT_EQ(other.requests[0].messages[0].string_or("content", ""),
            "Answer with a call of the tool g.");
  EXPECT_TRUE(std::get<Plan>(plan_with_tools(tiny, R"("tool_choice":"none")")).warnings.empty());
}

TEST(ChatCompletions, FormsThatNeedAGrammarAreRefused_SAMP_55_57) {
  TinyState tiny;
  const auto refusal = [&](std::string_view field, std::string_view value) {
    return refusal_of(plan_chat_completion, tiny.state,
                      R"({"messages":[{"role":"user","content":"hi"}],")" + std::string(field) +
                          "\":" + std::string(value) + "}");
  };
  for (const char* field : {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                            "structured_outputs", "grammar", "json_schema"}) {
    const ApiError error = refusal(field, R"({"a":"b"})");
    EXPECT_EQ(error.message, "grammars are disabled") << field;
    EXPECT_EQ(error.param, field);
  }
  const ApiError strict = refusal("response_format", R"({"type":"json_schema","json_schema":{
      "name":"n","strict":true,"schema":{"type":"object"}}})");
  EXPECT_EQ(strict.code, "unsupported_schema");
  EXPECT_EQ(strict.status, 400);
}

TEST(ChatCompletions, ASchemaThatNobodyEnforcesSaysSo_SAMP_55) {
  TinyState tiny;
  PlanOrError plan = plan_chat_completion(
      tiny.state,
      parsed(
          R"({"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}})"));
  EXPECT_EQ(std::get<Plan>(plan).warnings.size(), 1u);
  EXPECT_EQ(std::get<Plan>(plan).requests[0].messages[0].string_or("role", ""), "system");
}

TEST(Completions, ManyPromptsMakeManyRows_SRV_11) {
  TinyState tiny;
  PlanOrError plan =
      plan_completion(tiny.state, parsed(R"({"prompt":["a",[1,2],"c"],"n":2,"max_tokens":1})"));
  ASSERT_TRUE(std::holds_alternative<Plan>(plan));
  const Plan& made = std::get<Plan>(plan);
  ASSERT_EQ(made.requests.size(), 3u);
  EXPECT_EQ(made.requests[1].prompt_tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(made.requests[2].n, 2u);
  EXPECT_EQ(refusal_of(plan_completion, tiny.state, R"({"prompt":[]})").param, "prompt");
  EXPECT_EQ(refusal_of(plan_completion, tiny.state, R"({"prompt":"a","suffix":"b"})").message,
            "suffix is not supported");
  EXPECT_EQ(refusal_of(plan_completion, tiny.state, R"({"prompt":[[1],["x"]]})").param, "prompt");
}

TEST(Completions, EchoScoresThePrompt_C28) {
  TinyState tiny;
  const std::string answer = run_plan(
      plan_completion, tiny.state, R"({"prompt":"abc","max_tokens":0,"echo":true,"logprobs":1})");
  const json::Value whole = parsed(answer);
  const json::Value& choice = first_choice(whole);
  EXPECT_EQ(choice.string_or("text", ""), "abc");
  EXPECT_EQ(choice.string_or("finish_reason", ""), "length");
  const json::Array& logprobs = *choice.find("logprobs")->find("token_logprobs")->as_array();
  ASSERT_EQ(logprobs.size(), 3u);
  EXPECT_TRUE(logprobs[0].is_null());
  EXPECT_TRUE(logprobs[1].is_number() && logprobs[2].is_number());
  EXPECT_EQ(whole.find("usage")->int_or("completion_tokens", -1), 0);
}

TEST(Completions, AStreamJoinsToTheWholeAnswer_SRV_35) {
  TinyState tiny;
  constexpr const char* kFields = R"("prompt":"abc","max_tokens":12,"temperature":0)";
  const json::Value whole =
      parsed(run_plan(plan_completion, tiny.state, std::string("{") + kFields + "}"));
  std::string joined;
  for (const json::Value& chunk : chunks_of(
           run_plan(plan_completion, tiny.state, std::string("{") + kFields + ",\"stream\":true}")))
    joined += first_choice(chunk).string_or("text", "");
  EXPECT_EQ(joined, first_choice(whole).string_or("text", "?"));
}

}  // namespace
}  // namespace kvasir::server
