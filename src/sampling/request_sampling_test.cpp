#include "sampling/request_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir::sampling {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr std::uint32_t kVocab = 49152;

Result<PartialSampling> parse(std::string_view text, Surface surface = Surface::chat) {
  const auto body = json::parse(text);
  EXPECT_TRUE(body.has_value()) << text;
  return parse_sampling(*body, surface, kVocab);
}
std::string error_of(std::string_view text, Surface surface = Surface::chat) {
  const auto r = parse(text, surface);
  return r ? "accepted" : r.error().what;
}

struct Case {
  const char* body;
  const char* error;
};

TEST(RequestSampling, RejectsWrongTypesAndBoundsWithExactTexts) {  // SAMP-41
  const Case cases[] = {
      {R"({"stream":1})", "stream must be of type bool"},
      {R"({"stream":"true"})", "stream must be of type bool"},
      {R"({"logprobs":1})", "logprobs must be of type bool"},
      {R"({"ignore_eos":0})", "ignore_eos must be of type bool"},
      {R"({"max_tokens":"5"})", "max_tokens must be of type int"},
      {R"({"max_tokens":5.0})", "max_tokens must be of type int"},
      {R"({"max_tokens":true})", "max_tokens must be of type int"},
      {R"({"max_tokens":-1})", "max_tokens must be at least 0"},
      {R"({"max_completion_tokens":-5})", "max_completion_tokens must be at least 0"},
      {R"({"max_completion_tokens":[]})", "max_completion_tokens must be of type int"},
      {R"({"n_predict":-2})", "n_predict must be at least 0"},
      {R"({"top_k":-1})", "top_k must be at least 0"},
      {R"({"top_k":false})", "top_k must be of type int"},
      {R"({"num_draft_tokens":1.5})", "num_draft_tokens must be of type int"},
      {R"({"repetition_context_size":-1})", "repetition_context_size must be at least 0"},
      {R"({"presence_context_size":"a"})", "presence_context_size must be of type int"},
      {R"({"frequency_context_size":-3})", "frequency_context_size must be at least 0"},
      {R"({"temperature":"hot"})", "temperature must be of type ('float', 'int')"},
      {R"({"temperature":true})", "temperature must be of type ('float', 'int')"},
      {R"({"temperature":null})", "temperature must be of type ('float', 'int')"},
      {R"({"temperature":-0.1})", "temperature must be at least 0"},
      {R"({"repetition_penalty":-1})", "repetition_penalty must be at least 0"},
      {R"({"repeat_penalty":{}})", "repeat_penalty must be of type ('float', 'int')"},
      {R"({"top_p":1.01})", "top_p must be at most 1"},
      {R"({"top_p":-0.01})", "top_p must be at least 0"},
      {R"({"min_p":2})", "min_p must be at most 1"},
      {R"({"min_p":"x"})", "min_p must be of type ('float', 'int')"},
      {R"({"xtc_probability":1.5})", "xtc_probability must be at most 1"},
      {R"({"xtc_threshold":-1})", "xtc_threshold must be at least 0"},
      {R"({"presence_penalty":"1"})", "presence_penalty must be of type ('float', 'int')"},
      {R"({"frequency_penalty":false})", "frequency_penalty must be of type ('float', 'int')"},
      {R"({"top_logprobs":21})", "top_logprobs must be at most 20"},
      {R"({"top_logprobs":-2})", "top_logprobs must be at least 0"},
      {R"({"top_logprobs":1.0})", "top_logprobs must be of type int"},
      {R"({"seed":1.5})", "seed must be of type int"},
      {R"({"seed":true})", "seed must be of type int"},
      {R"({"seed":"7"})", "seed must be of type int"},
      {R"({"logit_bias":[1]})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"AI":-100}})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"1":"x"}})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"1":true}})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"":1}})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"1.5":1}})", "logit_bias must be a dict of int to float"},
      {R"({"logit_bias":{"49152":5}})", "logit_bias token id 49152 is out of range"},
      {R"({"logit_bias":{"-1":5}})", "logit_bias token id -1 is out of range"},
      {R"({"logit_bias":{"99999999999":1}})", "logit_bias token id 99999999999 is out of range"},
      {R"({"logit_bias":{"99999999999999999999999":1}})",
       "logit_bias token id 99999999999999999999999 is out of range"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.body), c.error) << c.body;
}

TEST(RequestSampling, CompletionsLogprobsIsACountOrABool) {  // SAMP-41
  const auto count = parse(R"({"logprobs":5})", Surface::completions);
  ASSERT_TRUE(count);
  EXPECT_EQ(count->logprobs, true);
  EXPECT_EQ(count->top_logprobs, 5u);
  const auto yes = parse(R"({"logprobs":true})", Surface::completions);
  ASSERT_TRUE(yes);
  EXPECT_EQ(yes->logprobs, true);
  EXPECT_EQ(yes->top_logprobs, 0u);
  EXPECT_EQ(parse(R"({"logprobs":false})", Surface::completions)->logprobs, false);
  EXPECT_EQ(error_of(R"({"logprobs":21})", Surface::completions), "logprobs must be at most 20");
  EXPECT_EQ(error_of(R"({"logprobs":-1})", Surface::completions), "logprobs must be at least 0");
  EXPECT_EQ(error_of(R"({"logprobs":"1"})", Surface::completions),
            "logprobs must be of type ('int', 'bool')");
}

TEST(RequestSampling, AcceptsTheEdgesOfTheTable) {
  const auto r = parse(
      R"({"temperature":0,"top_p":1,"min_p":0,"top_k":99999999999,"top_logprobs":-1,"seed":null,
                           "logit_bias":null,"xtc_threshold":1,"presence_penalty":-3,"max_tokens":0,"n":"ignored","x":{}})");
  ASSERT_TRUE(r) << r.error().what;

  EXPECT_EQ(r->temperature, 0.0f);
  EXPECT_EQ(r->top_k, 0xFFFFFFFFu);
  EXPECT_EQ(r->top_logprobs, std::nullopt);
  EXPECT_EQ(r->seed, std::nullopt);
  EXPECT_EQ(r->logit_bias, std::nullopt);
  EXPECT_EQ(r->presence_penalty, -3.0f);
  EXPECT_EQ(r->max_tokens, 0);
  EXPECT_EQ(r->top_p, 1.0f);
}

TEST(RequestSampling, SeedIsAnySixtyFourBits) {  // SAMP-22
  EXPECT_EQ(parse(R"({"seed":-1})")->seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_EQ(parse(R"({"seed":9223372036854775807})")->seed, 0x7FFFFFFFFFFFFFFFull);
  EXPECT_EQ(parse(R"({"seed":9223372036854775808})")->seed, 0x8000000000000000ull);
}

TEST(RequestSampling, LogitBiasIsSortedBoundedAndTheLastOfEqualIdsWins) {  // C27
  const auto r = parse(R"({"logit_bias":{"7":1,"3":-1000,"07":2,"5":1e300,"-0":4}})");
  ASSERT_TRUE(r) << r.error().what;

  EXPECT_THAT(*r->logit_bias,
              ElementsAre(Pair(0, 4.0f), Pair(3, -1000.0f), Pair(5, 1e30f), Pair(7, 2.0f)));
}

TEST(RequestSampling, MaxCompletionTokensWinsAndLlamaCppNamesAreAccepted) {  // SAMP-42
  EXPECT_EQ(parse(R"({"max_tokens":5,"max_completion_tokens":7,"n_predict":9})")->max_tokens, 7);
  EXPECT_EQ(parse(R"({"max_tokens":5,"n_predict":9})")->max_tokens, 5);
  EXPECT_EQ(parse(R"({"n_predict":9})")->max_tokens, 9);
  EXPECT_EQ(parse(R"({"n_predict":-1})")->max_tokens, kUntilContextFull);
  EXPECT_EQ(parse(R"({"repeat_penalty":1.5})")->repetition_penalty, 1.5f);
  EXPECT_EQ(parse(R"({"repeat_penalty":1.5,"repetition_penalty":1.25})")->repetition_penalty,
            1.25f);
  EXPECT_EQ(parse(R"({"repeat_last_n":64})")->repetition_context_size, 64u);
  EXPECT_EQ(parse(R"({"repeat_last_n":-1})")->repetition_context_size, 0u);
  EXPECT_EQ(parse(R"({"repeat_last_n":0,"repeat_penalty":1.5})")->repetition_penalty, 1.0f);
  EXPECT_EQ(parse(R"({"repeat_last_n":0,"repetition_context_size":8,"repeat_penalty":1.5})")
                ->repetition_penalty,
            1.5f);
}

TEST(MergeSampling, EachFieldComesFromTheFirstLayerThatNamesIt) {  // SAMP-40
  PartialSampling request, flags, config, family;
  request.top_k = 5;
  flags.top_k = 6;
  flags.temperature = 0.1f;
  config.temperature = 0.2f;
  config.top_p = 0.9f;
  family.top_p = 0.8f;
  family.min_p = 0.05f;
  const auto merged = merge_sampling(std::vector{request, flags, config, family}, Surface::chat);

  EXPECT_EQ(merged.options.top_k, 5u);
  EXPECT_EQ(merged.options.temperature, 0.1f);
  EXPECT_EQ(merged.options.top_p, 0.9f);
  EXPECT_EQ(merged.options.min_p, 0.05f);
}

TEST(MergeSampling, BuiltInDefaultsAreTheLastLayer) {  // SAMP-40
  const auto chat = merge_sampling({}, Surface::chat);
  EXPECT_EQ(chat.options.temperature, 0.7f);
  EXPECT_EQ(chat.max_tokens, 4096);
  EXPECT_FALSE(chat.max_tokens_explicit);
  EXPECT_EQ(merge_sampling({}, Surface::completions).max_tokens, 512);
}

TEST(MergeSampling, AnExplicitOffInTheRequestBeatsLowerLayers) {
  PartialSampling request, flags;
  request.temperature = 0.0f;
  request.top_k = 0;
  flags.temperature = 1.0f;
  flags.top_k = 40;
  const auto merged = merge_sampling(std::vector{request, flags}, Surface::chat);

  EXPECT_EQ(merged.options.temperature, 0.0f);
  EXPECT_EQ(merged.options.top_k, 0u);
}

TEST(GenerationConfig, MalformedFieldsCountAsUnsetAndHideNoOthers) {
  const auto body = json::parse(
      R"({"temperature":"x","top_p":0.9,"top_k":-4,"repetition_penalty":1.1,"max_new_tokens":77})");
  const PartialSampling p = from_generation_config(*body);

  EXPECT_EQ(p.temperature, std::nullopt);
  EXPECT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.top_k, std::nullopt);
  EXPECT_EQ(p.repetition_penalty, 1.1f);
  EXPECT_EQ(p.max_tokens, 77);
  EXPECT_EQ(from_generation_config(json::Value()).top_p, std::nullopt);
}

}  // namespace
}  // namespace kvasir::sampling
