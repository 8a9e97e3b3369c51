#include "server/endpoints/responses_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/testing/answers.h"

namespace kvasir::server {
namespace {

using testing::ElementsAre;

json::Object head() {
  return {{"id", "resp_1"}, {"object", "response"},    {"created_at", 0},
          {"status", ""},   {"error", nullptr},        {"incomplete_details", nullptr},
          {"model", ""},    {"output", json::Array{}}, {"usage", nullptr}};
}

ResponseFormat plain_format() { return ResponseFormat(head(), {}); }

std::vector<std::string> names_of(const std::vector<SseEvent>& events) {
  std::vector<std::string> out;
  for (const SseEvent& event : events) out.push_back(event.name);
  return out;
}

TEST(ResponseFormat, StreamOfATextIsExact_SRV42) {
  ResponseFormat format = plain_format();

  const std::string out = masked(stream(format, {{said("Hel"), said("lo")}}));

  EXPECT_EQ(out,
            R"(event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1714564800,"status":"in_progress","error":null,"incomplete_details":null,"model":"tiny","output":[],"usage":null}}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","object":"response","created_at":1714564800,"status":"in_progress","error":null,"incomplete_details":null,"model":"tiny","output":[],"usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_ID","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.content_part.added
data: {"type":"response.content_part.added","sequence_number":3,"item_id":"msg_ID","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_ID","output_index":0,"content_index":0,"delta":"Hel","logprobs":[]}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_ID","output_index":0,"content_index":0,"delta":"lo","logprobs":[]}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":6,"item_id":"msg_ID","output_index":0,"content_index":0,"text":"Hello","logprobs":[]}

event: response.content_part.done
data: {"type":"response.content_part.done","sequence_number":7,"item_id":"msg_ID","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello","annotations":[],"logprobs":[]}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":{"id":"msg_ID","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[],"logprobs":[]}]}}

event: response.completed
data: {"type":"response.completed","sequence_number":9,"response":{"id":"resp_1","object":"response","created_at":1714564800,"status":"completed","error":null,"incomplete_details":null,"model":"tiny","output":[{"id":"msg_ID","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[],"logprobs":[]}]}],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}}}

)");
}

TEST(ResponseFormat, ReasoningAndCallsAreItemsOfTheirOwn) {
  ResponseFormat format = plain_format();

  const auto events = sse_events(
      stream(format, {{thought("hm"), said("\n"), called("f", R"({"a":1})")}, "tool_calls"}));

  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(
      masked(json::write(*events.back().data.find("response")->find("output"))),
      R"([{"id":"rs_ID","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},)"
      R"({"id":"fc_ID","type":"function_call","status":"completed","call_id":"call_0","name":"f","arguments":"{\"a\":1}"}])");
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].data.int_or("sequence_number", -1), static_cast<std::int64_t>(i));
    EXPECT_EQ(events[i].data.string_or("type", ""), events[i].name);
  }
}

TEST(ResponseFormat, ItemIdsOfTheStreamAreThoseOfTheEnd) {
  ResponseFormat format = plain_format();
  const auto events = sse_events(stream(format, {{said("a"), called("f", "{}"), said("b")}}));
  std::vector<std::string> streamed, ended;
  for (const SseEvent& event : events) {
    if (event.name == "response.output_item.added")
      streamed.push_back(event.data.find("item")->string_or("id", ""));
  }
  for (const json::Value& item : *events.back().data.find("response")->find("output")->as_array())
    ended.push_back(item.string_or("id", ""));
  EXPECT_EQ(streamed.size(), 3u);
  EXPECT_EQ(streamed, ended);
}

TEST(ResponseFormat, ACutAnswerIsIncomplete) {
  ResponseFormat format = plain_format();
  const auto events = sse_events(stream(format, {{said("Once upon")}, "length"}));
  const json::Value& response = *events.back().data.find("response");
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(response.string_or("status", ""), "incomplete");
  EXPECT_EQ(json::write(*response.find("incomplete_details")), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ((*response.find("output")->as_array())[0].string_or("status", ""), "incomplete");
}

TEST(ResponseFormat, AFailureEndsTheStreamWithWhatWasSaid) {
  ResponseFormat format = plain_format();
  Transcript transcript = start_of_answer();
  std::string out;
  format.begin(transcript, out);
  StreamEvent event;
  event.pieces = {said("Onc")};
  format.event(transcript, event, out);
  ApiError error;
  error.status = 500;
  error.code = "numeric_error";
  error.message = "not a number";
  out.clear();

  format.error(error, out);

  const auto events = sse_events(out);
  ASSERT_EQ(names_of(events), std::vector<std::string>{"response.failed"});
  const json::Value& response = *events[0].data.find("response");
  EXPECT_EQ(response.string_or("status", ""), "failed");
  EXPECT_EQ(json::write(*response.find("error")),
            R"({"code":"server_error","message":"not a number","type":"numeric_error"})");
  EXPECT_EQ(
      masked(json::write(*response.find("output"))),
      R"([{"id":"msg_ID","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Onc","annotations":[],"logprobs":[]}]}])");
}

TEST(ResponseFormat, TheAnswerIsKeptBeforeItsEndIsWritten_C33) {
  std::string kept;
  ResponseFormat format(head(), [&](const json::Value& response, const ChoiceTranscript& choice) {
    kept = response.string_or("status", "") + " " + choice.content();
  });
  const json::Value answer = whole(format, {{said("Hi")}});
  EXPECT_EQ(kept, "completed Hi");
  EXPECT_EQ(answer.string_or("status", ""), "completed");
  EXPECT_EQ(answer.string_or("model", ""), "tiny");
}

}  // namespace
}  // namespace kvasir::server
