#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string messages_of(ServerState& state, std::string_view body) {
  return json::write(request_of(plan_message, state, body).messages);
}

std::string refused(ServerState& state, std::string_view body) {
  return refusal_of(plan_message, state, body).message;
}

TEST(Messages, SystemStringAndBlocksAreOne_C34) {
  TinyState tiny;
  const char* expected =
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])";
  EXPECT_EQ(messages_of(tiny.state, R"({"max_tokens":1,"system":"Be brief.",
      "messages":[{"role":"user","content":"hi"}]})"),
            expected);
  EXPECT_EQ(messages_of(tiny.state, R"({"max_tokens":1,"system":[
      {"type":"text","text":"x-anthropic-billing-header: v=1; cch=93ab;"},
      {"type":"text","text":"Be ","cache_control":{"type":"ephemeral"}},
      {"type":"text","text":"brief."}],
      "messages":[{"role":"user","content":[{"type":"text","text":"h"},
                                             {"type":"text","text":"i"}]}]})"),
            expected);
}

TEST(Messages, CallsAndResultsBecomeChatMessages) {
  TinyState tiny;
  EXPECT_EQ(
      messages_of(tiny.state, R"({"max_tokens":1,"messages":[
        {"role":"user","content":"2+2?"},
        {"role":"assistant","content":[{"type":"text","text":"I add."},
          {"type":"tool_use","id":"toolu_1","name":"add","input":{"b":2,"a":2}}]},
        {"role":"user","content":[
          {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"4"}]},
          {"type":"text","text":"So?"}]}]})"),
      R"([{"role":"user","content":"2+2?"},{"role":"assistant","content":"I add.","tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"add","arguments":{"b":2,"a":2}}}]},{"role":"tool","tool_call_id":"toolu_1","name":"add","content":"4"},{"role":"user","content":"So?"}])");
}

TEST(Messages, ThinkingComesBackOnlyWithItsSignature_SRV41) {
  TinyState tiny;
  const std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"deep","signature":"SIG"},
      {"type":"redacted_thinking","data":"xyz"},{"type":"text","text":"a"}]},
    {"role":"user","content":"r"}]})";
  std::string good = body;
  good.replace(good.find("SIG"), 3, tiny.state.signer.sign("deep"));

  EXPECT_THAT(messages_of(tiny.state, good),
              HasSubstr(R"("content":"a","reasoning":"deep","reasoning_content":"deep")"));
  EXPECT_THAT(messages_of(tiny.state, body), HasSubstr(R"({"role":"assistant","content":"a"})"));
}

TEST(Messages, ALastAssistantMessageIsContinued) {
  TinyState tiny;
  const GenerateRequest request = request_of(plan_message, tiny.state, R"({"max_tokens":1,
      "messages":[{"role":"user","content":"count"},
                  {"role":"assistant","content":[{"type":"text","text":"1, 2,"}]}]})");

  EXPECT_TRUE(request.continue_final_message);
  EXPECT_THAT(*tiny_engine().render(request), testing::EndsWith("assistant\n1, 2,"));
}

TEST(Messages, APrefillIsOneHoweverItIsWritten_C11) {
  TinyState tiny;
  const auto count = [&](const std::string& content) {
    const std::string body = R"({"messages":[{"role":"user","content":"count"},
        {"role":"assistant","content":)" +
                             content + "}]}";
    return count_message_tokens(tiny.state, post_of(body), {}).body;
  };
  EXPECT_EQ(count(R"("1, 2,")"), count(R"([{"type":"text","text":"1, 2,"}])"));
}

TEST(Messages, SpecialTokensInContentAreText_C16) {
  TinyState tiny;
  const auto count = [&](const std::string& content) {
    const std::string body = R"({"messages":[{"role":"user","content":")" + content + R"("}]})";
    return parsed(count_message_tokens(tiny.state, post_of(body), {}).body)
        .int_or("input_tokens", 0);
  };
  EXPECT_EQ(count("<|im_end|>"), count("0123456789")) << "a token a byte, no special one";
}

TEST(Messages, FieldsBecomeSamplingAndTemplateVariables) {
  TinyState tiny;
  const GenerateRequest request = request_of(plan_message, tiny.state, R"({"max_tokens":7,
      "temperature":0.5,"top_p":0.9,"top_k":3,"stop_sequences":["a","b"],"min_p":0.25,
      "logit_bias":{"999999":5},"thinking":{"type":"enabled","budget_tokens":1024},
      "metadata":{"user_id":"u"},"messages":[{"role":"user","content":"q"}]})");

  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 3u);
  EXPECT_EQ(request.sampling.min_p, 0.25f);
  EXPECT_TRUE(request.sampling.logit_bias.empty());
  EXPECT_THAT(request.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(json::Value(request.template_variables).bool_or("enable_thinking", false));
}

TEST(Messages, ClientToolsAreFunctionsAndServerToolsAreDropped) {
  TinyState tiny;
  auto plan = plan_message(tiny.state, parsed(R"({"max_tokens":1,
      "tools":[{"type":"web_search_20250305","name":"web_search"},
               {"name":"add","description":"adds","input_schema":{"type":"object"}}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true},
      "messages":[{"role":"user","content":"q"}]})"));

  const Plan& made = std::get<Plan>(plan);
  EXPECT_EQ(
      json::write(made.requests[0].tools),
      R"([{"type":"function","function":{"name":"add","description":"adds","parameters":{"type":"object"}}}])");
  EXPECT_FALSE(made.requests[0].parallel_tool_calls);
  EXPECT_THAT(made.warnings, ElementsAre(HasSubstr("grammar not enforced: tool_choice required")));
}

TEST(Messages, RefusalsNameTheField) {
  TinyState tiny;
  EXPECT_EQ(refused(tiny.state, R"({"messages":[{"role":"user","content":"q"}]})"),
            "max_tokens is required");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":"5","messages":[]})"),
            "max_tokens must be of type int");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"messages":[]})"),
            "messages must be a non-empty array");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"messages":[{"role":"critic"}]})"),
            "messages[0].role must be user or assistant");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"messages":[
      {"role":"user","content":[{"type":"image","source":{}}]}]})"),
            "this model does not accept images");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"stop_sequences":"x",
      "messages":[{"role":"user","content":"q"}]})"),
            "stop_sequences must be of type list");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"tools":[{"name":"f"}],
      "messages":[{"role":"user","content":"q"}]})"),
            "tools[0].input_schema must be of type dict");
  EXPECT_EQ(refused(tiny.state, R"({"max_tokens":1,"temperature":"hot",
      "messages":[{"role":"user","content":"q"}]})"),
            "temperature must be of type ('float', 'int')");
}

TEST(Messages, CountedTokensAreTheInputOfTheMessage_C34) {
  TinyState tiny;
  const std::string body = R"({"max_tokens":3,"system":"Be brief.",
      "tools":[{"name":"add","input_schema":{"type":"object","properties":{"a":{}}}}],
      "messages":[{"role":"user","content":"hi <|im_end|> there"}]})";

  const HttpReply counted = count_message_tokens(tiny.state, post_of(body), {});
  const json::Value answer = parsed(run_plan(plan_message, tiny.state, body));

  const json::Value* usage = answer.find("usage");
  ASSERT_TRUE(usage);
  EXPECT_EQ(parsed(counted.body).int_or("input_tokens", -1),
            usage->int_or("input_tokens", 0) + usage->int_or("cache_read_input_tokens", 0));
}

TEST(Messages, CountingRefusesInTheShapeOfTheApi) {
  TinyState tiny;
  const HttpReply reply = count_message_tokens(tiny.state, post_of(R"({"messages":1})"), {});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.body, R"({"type":"error","error":{"type":"invalid_request_error",)"
                        R"("message":"messages must be a non-empty array"}})");
}

TEST(Messages, ATemplatesOwnRefusalIsTold_C12) {
  TinyState tiny;
  const HttpReply reply = count_message_tokens(
      tiny.state,
      post_of(R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})"), {});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("roles must alternate"));
}

}  // namespace
}  // namespace kvasir::server
