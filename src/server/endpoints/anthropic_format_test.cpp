#include "server/endpoints/anthropic_format.h"

#include <gtest/gtest.h>

#include "server/endpoints/testing/answers.h"

namespace kvasir::server {
namespace {

TEST(AnthropicFormat, StreamOfAllBlocksIsInTheOrderOfTheApi_SRV41) {
  const Signer signer;
  AnthropicFormat format(signer);
  const Script script{
      {thought("let me "), thought("see"), said("\n\n"), said("I'll "), said("look."),
       called("find", R"({"q":"a"})"), said("\n"), called("find", R"({"q":"b"})", 1)},
      "tool_calls"};

  const std::string out = masked(stream(format, script));

  EXPECT_EQ(out,
            R"(event: message_start
data: {"type":"message_start","message":{"id":"msg_ID","type":"message","role":"assistant","model":"tiny","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"let me "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":")" +
                signer.sign("let me see") + R"("}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\n\nI'll "}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"look."}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_0","name":"find","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\":\"a\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"call_1","name":"find","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"q\":\"b\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

)");
}

TEST(AnthropicFormat, WholeAnswerHasTheBlocksOfTheStream_SRV40) {
  const Signer signer;
  AnthropicFormat format(signer);
  const Script script{{thought("hm"), said("Hi"), said("!"), called("f", R"({"z":1,"a":[2]})")},
                      "tool_calls"};

  const std::string out = masked(json::write(whole(format, script)));

  EXPECT_EQ(
      out,
      R"({"id":"msg_ID","type":"message","role":"assistant","model":"tiny","content":[{"type":"thinking","thinking":"hm","signature":")" +
          signer.sign("hm") +
          R"("},{"type":"text","text":"Hi!"},{"type":"tool_use","id":"call_0","name":"f","input":{"z":1,"a":[2]}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":5}})");
}

TEST(AnthropicFormat, StopReasonsAreTheApis) {
  const Signer signer;
  const auto reason = [&](Script script) {
    AnthropicFormat format(signer);
    const json::Value out = whole(format, script);
    return out.string_or("stop_reason", "-") + " " + out.string_or("stop_sequence", "-");
  };
  EXPECT_EQ(reason({{said("a")}, "stop"}), "end_turn -");
  EXPECT_EQ(reason({{said("a")}, "length"}), "max_tokens -");
  EXPECT_EQ(reason({{said("a")}, "stop", "END"}), "stop_sequence END");
  EXPECT_EQ(reason({{called("f", "{}")}, "tool_calls"}), "tool_use -");
}

TEST(AnthropicFormat, WhiteSpaceIsATextOnlyWhenItIsAllThereIs) {
  const Signer signer;
  const auto content = [&](Script script) {
    AnthropicFormat format(signer);
    return json::write(*whole(format, script).find("content"));
  };
  EXPECT_EQ(content({{said("\n ")}, "length"}), R"([{"type":"text","text":"\n "}])");
  EXPECT_EQ(content({{called("f", "{}"), said("\n")}}),
            R"([{"type":"tool_use","id":"call_0","name":"f","input":{}}])");
  EXPECT_EQ(content({}), "[]");
}

TEST(AnthropicFormat, ErrorsInAStreamAreEvents) {
  const Signer signer;
  AnthropicFormat format(signer);
  ApiError error;
  error.status = 500;
  error.message = "out of blocks";
  std::string out;

  format.error(error, out);

  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
            "\"message\":\"out of blocks\"}}\n\n");
}

TEST(AnthropicFormat, KeepAliveIsACommentAndAPing_SRV33) {
  const Signer signer;
  AnthropicFormat format(signer);
  Transcript transcript = start_of_answer();
  transcript.n_fed = 3;
  transcript.n_prompt = 9;
  std::string out;

  format.keep_alive(transcript, out);

  EXPECT_EQ(out, ": keepalive 3/9\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

}  // namespace
}  // namespace kvasir::server
