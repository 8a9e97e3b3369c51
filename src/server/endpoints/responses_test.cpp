#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/testing/answers.h"
#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string messages_of(ServerState& state, std::string_view body) {
  return json::write(request_of(plan_response, state, body).messages);
}

std::string refused(ServerState& state, std::string_view body) {
  return refusal_of(plan_response, state, body).message;
}

TEST(Responses, AStringIsAUserMessageAndInstructionsLead) {
  TinyState tiny;
  EXPECT_EQ(messages_of(tiny.state, R"({"input":"hi","instructions":"Be brief."})"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
}

TEST(Responses, InstructionsJoinADevelopersMessage) {
  TinyState tiny;
  EXPECT_EQ(messages_of(tiny.state, R"({"instructions":"A.","input":[
                {"role":"developer","content":"B."},{"role":"user","content":"hi"}]})"),
            R"([{"role":"developer","content":"A.\n\nB."},{"role":"user","content":"hi"}])");
}

TEST(Responses, ItemsOfOneTurnAreOneMessage) {
  TinyState tiny;
  EXPECT_EQ(
      messages_of(tiny.state, R"({"input":[
        {"type":"message","role":"user","content":[{"type":"input_text","text":"2+2"},
                                                   {"type":"input_text","text":"?"}]},
        {"type":"reasoning","id":"rs_1","summary":[],
         "content":[{"type":"reasoning_text","text":"sum"}]},
        {"type":"message","role":"assistant","id":"msg_1","status":"completed",
         "content":[{"type":"output_text","text":"I add.","annotations":[]}]},
        {"type":"function_call","call_id":"call_1","name":"add","arguments":"{\"a\":2}"},
        {"type":"function_call","call_id":"call_2","name":"sub","arguments":"{}"},
        {"type":"function_call_output","call_id":"call_1","output":"4"},
        {"type":"function_call_output","call_id":"call_2",
         "output":[{"type":"input_text","text":"0"}]}]})"),
      R"([{"role":"user","content":"2+2?"},{"role":"assistant","content":"I add.","reasoning":"sum","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":2}"}},{"id":"call_2","type":"function","function":{"name":"sub","arguments":"{}"}}],"reasoning_content":"sum"},{"role":"tool","tool_call_id":"call_1","name":"add","content":"4"},{"role":"tool","tool_call_id":"call_2","name":"sub","content":"0"}])");
}

TEST(Responses, FieldsBecomeTheRequest) {
  TinyState tiny;
  const GenerateRequest request = request_of(plan_response, tiny.state, R"({"input":"q",
      "max_output_tokens":9,"temperature":0.5,"top_p":0.9,"reasoning":{"effort":"none"},
      "parallel_tool_calls":false,
      "tools":[{"type":"web_search"},
               {"type":"function","name":"f","parameters":{"type":"object"},"strict":false}]})");

  EXPECT_EQ(request.max_tokens, 9u);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(
      json::write(request.tools),
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":false}}])");
  EXPECT_FALSE(json::Value(request.template_variables).bool_or("enable_thinking", true));
}

TEST(Responses, ToolChoiceKeepsWhatMayBeCalled) {
  TinyState tiny;
  const auto tools_with = [&](const std::string& choice) {
    const std::string body = R"({"input":"q","tools":[{"type":"function","name":"f"},
        {"type":"function","name":"g"}],"tool_choice":)" +
                             choice + "}";
    std::string out;
    for (const json::Value& tool : request_of(plan_response, tiny.state, body).tools)
      out += tool.find("function")->string_or("name", "");
    return out;
  };
  EXPECT_EQ(tools_with(R"("auto")"), "fg");
  EXPECT_EQ(tools_with(R"("none")"), "");
  EXPECT_EQ(tools_with(R"({"type":"function","name":"g"})"), "g");
  EXPECT_EQ(tools_with(R"({"type":"allowed_tools","mode":"auto","tools":[
      {"type":"function","name":"f"}]})"),
            "f");
}

TEST(Responses, TextFormatIsAnInstructionWithAWarning_SAMP55) {
  TinyState tiny;
  auto plan = plan_response(tiny.state, parsed(R"({"input":"q","text":{"format":{
      "type":"json_schema","name":"n","schema":{"type":"object"}}}})"));
  const Plan& made = std::get<Plan>(plan);
  EXPECT_THAT(made.warnings, ElementsAre(HasSubstr("grammar not enforced")));
  EXPECT_THAT(json::write(made.requests[0].messages), HasSubstr("JSON schema"));
  EXPECT_THAT(refused(tiny.state, R"({"input":"q","text":{"format":{"type":"json_schema",
      "name":"n","strict":true,"schema":{"type":"object"}}}})"),
              testing::StartsWith("text.format with strict true"));
}

TEST(Responses, AFormInstructionJoinsADevelopersMessage) {
  TinyState tiny;
  EXPECT_EQ(messages_of(tiny.state, R"({"text":{"format":{"type":"json_object"}},"input":[
                {"role":"developer","content":"A."},{"role":"user","content":"q"}]})"),
            R"([{"role":"developer","content":"A.\n\nAnswer with one valid JSON value and nothing )"
            R"(else."},{"role":"user","content":"q"}])");
}

TEST(Responses, ADeveloperIsTheSystemWhereTheTemplateKnowsNone_C12) {
  TinyState tiny;
  const auto rendered = [&](const std::string& role) {
    return *tiny_engine().render(request_of(
        plan_response, tiny.state,
        R"({"input":[{"role":")" + role + R"(","content":"A."},{"role":"user","content":"q"}]})"));
  };
  EXPECT_EQ(rendered("developer"), rendered("system"));
}

TEST(Responses, RefusalsNameTheField) {
  TinyState tiny;
  EXPECT_EQ(refused(tiny.state, "{}"), "input must be a string or a non-empty list");
  EXPECT_EQ(refused(tiny.state, R"({"input":[{"role":"critic","content":"x"}]})"),
            "input[0].role: unknown role \"critic\"");
  EXPECT_EQ(refused(tiny.state, R"({"input":[{"type":"computer_call"}]})"),
            "input[0].type: 'computer_call' is not supported");
  EXPECT_EQ(refused(tiny.state, R"({"input":[{"role":"user","content":[
      {"type":"input_image","image_url":"x"}]}]})"),
            "this model does not accept images");
  EXPECT_EQ(refused(tiny.state, R"({"input":"q","max_output_tokens":0})"),
            "max_output_tokens must be at least 1");
  EXPECT_EQ(refused(tiny.state, R"({"input":"q","background":true})"),
            "background responses are not supported");
  EXPECT_EQ(refused(tiny.state, R"({"input":"q","store":"yes"})"), "store must be of type bool");
}

TEST(Responses, AnUnknownPreviousResponseIsNotFound_C33) {
  TinyState tiny;
  const ApiError error =
      refusal_of(plan_response, tiny.state, R"({"input":"q","previous_response_id":"resp_x"})");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "response_not_found");
  EXPECT_EQ(error.param, "previous_response_id");
  EXPECT_EQ(get_response(tiny.state, {}, "resp_x").status, 404);
  EXPECT_EQ(delete_response(tiny.state, {}, "resp_x").status, 404);
}

TEST(Responses, AStreamedAnswerCanBeGoneOnFromWithoutItsInstructions_C33) {
  TinyState tiny;
  const auto events = sse_events(run_plan(plan_response, tiny.state, R"({"input":"one",
      "instructions":"Be brief.","stream":true,"max_output_tokens":3,"temperature":0})"));
  ASSERT_GE(events.size(), 3u);
  const json::Value& last = *events.back().data.find("response");
  const std::string id = last.string_or("id", "");
  EXPECT_EQ(events.front().data.find("response")->string_or("id", ""), id);

  const GenerateRequest next = request_of(
      plan_response, tiny.state, R"({"input":"two","previous_response_id":")" + id + R"("})");

  ASSERT_EQ(next.messages.size(), 3u);
  EXPECT_EQ(next.messages[0].string_or("content", ""), "one");
  EXPECT_EQ(next.messages[1].string_or("role", ""), "assistant");
  EXPECT_EQ(next.messages[2].string_or("content", ""), "two");
  EXPECT_EQ(get_response(tiny.state, {}, id).body, json::write(last));
  EXPECT_EQ(delete_response(tiny.state, {}, id).body,
            R"({"id":")" + id + R"(","object":"response","deleted":true})");
  EXPECT_EQ(get_response(tiny.state, {}, id).status, 404);
}

TEST(Responses, StoreFalseKeepsNothing) {
  TinyState tiny;
  const json::Value answer = parsed(run_plan(
      plan_response, tiny.state, R"({"input":"one","store":false,"max_output_tokens":1})"));
  EXPECT_EQ(answer.string_or("object", ""), "response");
  EXPECT_EQ(get_response(tiny.state, {}, answer.string_or("id", "")).status, 404);
}

TEST(Responses, TheAnswerRepeatsTheRequest) {
  TinyState tiny;
  const json::Value answer = parsed(run_plan(plan_response, tiny.state, R"({"input":"one",
      "model":"m","instructions":"I","max_output_tokens":1,"temperature":0.5,"top_p":0.9,
      "metadata":{"k":"v"},"user":"u","tools":[{"type":"function","name":"f"}]})"));
  json::Object shown = *answer.as_object();
  for (const char* field : {"id", "created_at", "output", "usage"}) shown.erase(field);
  EXPECT_EQ(
      json::write(shown),
      R"({"object":"response","status":"incomplete","background":false,"error":null,"incomplete_details":{"reason":"max_output_tokens"},"instructions":"I","max_output_tokens":1,"max_tool_calls":null,"model":"m","parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":true,"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[{"type":"function","name":"f","parameters":null,"strict":null}],"top_p":0.9,"truncation":"disabled","user":"u","metadata":{"k":"v"}})");
}

}  // namespace
}  // namespace kvasir::server
