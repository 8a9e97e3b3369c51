#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/ollama_format.h"
#include "server/endpoints/testing/answers.h"
#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OllamaFormat, ChatStreamsALineAPiece) {
  OllamaFormat format(OllamaShape::chat, /*is_load=*/false);

  const std::string out = stream(
      format, {{thought("hm"), said("Hi"), called("f", R"({"z":1,"a":[2]})")}, "tool_calls"});

  EXPECT_EQ(
      out,
      R"({"model":"tiny","created_at":"2024-05-01T12:00:00Z","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}
{"model":"tiny","created_at":"2024-05-01T12:00:00Z","message":{"role":"assistant","content":"Hi"},"done":false}
{"model":"tiny","created_at":"2024-05-01T12:00:00Z","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_0","function":{"index":0,"name":"f","arguments":{"z":1,"a":[2]}}}]},"done":false}
{"model":"tiny","created_at":"2024-05-01T12:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":321500000,"load_duration":0,"prompt_eval_count":10,"prompt_eval_duration":20000000,"eval_count":5,"eval_duration":300500000}
)");
}

TEST(OllamaFormat, GenerateStreamsItsOwnFields) {
  OllamaFormat format(OllamaShape::generate, /*is_load=*/false);
  EXPECT_EQ(
      stream(format, {{thought("hm"), said("Hi")}, "length"}),
      R"({"model":"tiny","created_at":"2024-05-01T12:00:00Z","response":"","thinking":"hm","done":false}
{"model":"tiny","created_at":"2024-05-01T12:00:00Z","response":"Hi","done":false}
{"model":"tiny","created_at":"2024-05-01T12:00:00Z","response":"","done":true,"done_reason":"length","total_duration":321500000,"load_duration":0,"prompt_eval_count":10,"prompt_eval_duration":20000000,"eval_count":5,"eval_duration":300500000}
)");
}

TEST(OllamaFormat, WholeAnswersAreOneObject) {
  OllamaFormat format(OllamaShape::chat, /*is_load=*/false);
  const json::Value out = whole(format, {{thought("hm"), said("Hi"), said("!")}});
  EXPECT_EQ(json::write(*out.find("message")),
            R"({"role":"assistant","content":"Hi!","thinking":"hm"})");
  EXPECT_TRUE(out.bool_or("done", false));
}

TEST(OllamaFormat, ErrorsAndKeepAlivesAreLines) {
  OllamaFormat format(OllamaShape::generate, /*is_load=*/false);
  ApiError error;
  error.message = "out of blocks";
  std::string out;

  format.keep_alive(start_of_answer(), out);
  format.error(error, out);

  EXPECT_EQ(out,
            R"({"model":"tiny","created_at":"2024-05-01T12:00:00Z","response":"","done":false}
{"error":"out of blocks"}
)");
}

TEST(Ollama, AnEmptyPromptAsksWhetherTheModelIsReady) {
  TinyState tiny;
  for (const PlanFn plan : {plan_ollama_chat, plan_ollama_generate}) {
    const std::string out = run_plan(plan, tiny.state, R"({"model":"tiny"})");
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
    EXPECT_THAT(out, testing::EndsWith("\"done\":true,\"done_reason\":\"load\"}\n"));
  }
}

TEST(Ollama, StreamsUnlessToldNotTo) {
  TinyState tiny;
  const auto plan_of = [&](std::string_view body) {
    return std::get<Plan>(plan_ollama_generate(tiny.state, parsed(body)));
  };
  EXPECT_TRUE(plan_of(R"({"prompt":"a"})").stream);
  EXPECT_FALSE(plan_of(R"({"prompt":"a","stream":false})").stream);
  const json::Value answer =
      parsed(run_plan(plan_ollama_generate, tiny.state,
                      R"({"prompt":"a","stream":false,"options":{"num_predict":3}})"));
  EXPECT_EQ(answer.string_or("done_reason", ""), "length");
  EXPECT_EQ(answer.int_or("eval_count", 0), 3);
}

TEST(Ollama, OptionsAreSampling) {
  TinyState tiny;
  const auto with = [&](const std::string& options) {
    return request_of(plan_ollama_generate, tiny.state,
                      R"({"prompt":"a","options":)" + options + "}");
  };
  const GenerateRequest request = with(R"({"temperature":0.5,"top_k":4,"top_p":0.75,"min_p":0.25,
      "seed":7,"num_predict":11,"stop":["x"],"repeat_penalty":1.5,"repeat_last_n":64,
      "presence_penalty":0.5,"frequency_penalty":0.25,"num_ctx":4096})");

  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 4u);
  EXPECT_EQ(request.sampling.top_p, 0.75f);
  EXPECT_EQ(request.sampling.min_p, 0.25f);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.max_tokens, 11u);
  EXPECT_THAT(request.stops, ElementsAre("x"));
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.repetition_context_size, 64u);
  EXPECT_EQ(request.sampling.presence_penalty, 0.5f);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.25f);
  EXPECT_TRUE(with(R"({"num_predict":-1})").until_context_full);
  EXPECT_TRUE(with(R"({"num_predict":-2})").until_context_full);
}

TEST(Ollama, ChatMessagesGetCallIds) {
  TinyState tiny;
  const GenerateRequest request = request_of(plan_ollama_chat, tiny.state, R"({"messages":[
      {"role":"user","content":"q"},
      {"role":"assistant","content":"","thinking":"hm","tool_calls":[
        {"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}]},
      {"role":"tool","tool_name":"g","content":"G"},
      {"role":"tool","content":"F"}]})");
  EXPECT_EQ(
      json::write(request.messages),
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"","reasoning":"hm","tool_calls":[{"id":"call00000","type":"function","function":{"name":"f","arguments":{"a":1}}},{"id":"call00001","type":"function","function":{"name":"g","arguments":{}}}],"reasoning_content":"hm"},{"role":"tool","tool_call_id":"call00001","name":"g","content":"G"},{"role":"tool","tool_call_id":"call00000","name":"f","content":"F"}])");
  EXPECT_FALSE(request.continue_final_message);
}

TEST(Ollama, GenerateUsesTheTemplateUnlessRaw) {
  TinyState tiny;
  const GenerateRequest chat =
      request_of(plan_ollama_generate, tiny.state, R"({"prompt":"q","system":"s"})");
  const GenerateRequest raw =
      request_of(plan_ollama_generate, tiny.state, R"({"prompt":"<|im_start|>q","raw":true})");
  EXPECT_EQ(json::write(chat.messages),
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"}])");
  EXPECT_TRUE(raw.messages.empty());
  EXPECT_EQ(raw.prompt, "<|im_start|>q");
  EXPECT_TRUE(raw.parse_special);
}

TEST(Ollama, ThinkIsAFlagOrAnEffort) {
  TinyState tiny;
  const auto variables = [&](const std::string& think) {
    return json::write(
        request_of(plan_ollama_chat, tiny.state,
                   R"({"messages":[{"role":"user","content":"q"}],"think":)" + think + "}")
            .template_variables);
  };
  EXPECT_EQ(variables("true"), R"({"enable_thinking":true})");
  EXPECT_EQ(variables("false"), R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("low")"), R"({"enable_thinking":true,"reasoning_effort":"low"})");
}

TEST(Ollama, FormatIsAnInstructionWithAWarning) {
  TinyState tiny;
  auto plan =
      plan_ollama_generate(tiny.state, parsed(R"({"prompt":"q","format":{"type":"object"}})"));
  const Plan& made = std::get<Plan>(plan);
  EXPECT_THAT(made.warnings, ElementsAre(HasSubstr("grammar not enforced")));
  EXPECT_THAT(json::write(made.requests[0].messages), HasSubstr("JSON schema"));
}

TEST(Ollama, RefusalsNameTheField) {
  TinyState tiny;
  const auto generate = [&](std::string_view body) {
    return refusal_of(plan_ollama_generate, tiny.state, body).message;
  };
  const auto chat = [&](std::string_view body) {
    return refusal_of(plan_ollama_chat, tiny.state, body).message;
  };
  EXPECT_EQ(generate(R"({"prompt":"a","suffix":"b"})"), "suffix is not supported");
  EXPECT_EQ(generate(R"({"prompt":"a","template":"b"})"), "template is not supported");
  EXPECT_EQ(generate(R"({"prompt":"a","images":["b"]})"), "this model does not accept images");
  EXPECT_EQ(generate(R"({"prompt":"a","format":"yaml"})"), "format must be json or a JSON schema");
  EXPECT_EQ(generate(R"({"prompt":"a","options":{"num_predict":-3}})"),
            "num_predict must be at least -2");
  EXPECT_EQ(generate(R"({"prompt":"a","options":{"top_p":2}})"), "top_p must be at most 1");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"a","images":["b"]}]})"),
            "this model does not accept images");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":5}]})"),
            "messages[0].content must be of type str");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"a"}],"think":3})"),
            "think must be of type bool or str");
}

TEST(Ollama, ModelsAreDescribed) {
  TinyState tiny;
  tiny.state.options.aliases = {"small"};

  const json::Value tags = parsed(ollama_tags(tiny.state, {}, {}).body);
  const json::Value shown = parsed(ollama_show(tiny.state, post_of(R"({"model":"x"})"), {}).body);

  const json::Array& models = *tags.find("models")->as_array();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].string_or("name", ""), "tiny");
  EXPECT_EQ(models[1].string_or("model", ""), "small");
  EXPECT_EQ(models[0].string_or("digest", "").size(), 64u);
  EXPECT_EQ(models[0].find("details")->string_or("family", ""), "llama");
  EXPECT_EQ(json::write(*shown.find("capabilities")), R"(["completion","tools","thinking"])");
  EXPECT_EQ(shown.find("model_info")->string_or("general.architecture", ""), "llama");
  EXPECT_EQ(shown.find("model_info")->int_or("llama.vocab_size", 0), 288);
  EXPECT_THAT(shown.string_or("parameters", ""), HasSubstr("temperature "));
}

TEST(Ollama, AnUnknownModelIsNotShownWhenNamesAreStrict) {
  TinyState tiny;
  tiny.state.options.strict_model = true;
  const HttpReply reply = ollama_show(tiny.state, post_of(R"({"name":"other"})"), {});
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.body, R"({"error":"the model 'other' is not served here; this is tiny"})");
}

}  // namespace
}  // namespace kvasir::server
