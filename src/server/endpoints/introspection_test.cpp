// /fit, /stats, /metrics and what names the backend (SRV-20, SRV-60, SRV-61, FIT-10, FIT-16).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

json::Value body_of(const HttpReply& reply) { return parsed(reply.body); }

std::int64_t integer(const json::Value& object, std::string_view member) {
  return object.int_or(member, -1);
}

TEST(Introspection, FitIsTheReportByWhichTheModelWasOpened_FIT_10) {
  TinyState tiny;

  const json::Value fit = body_of(fit_report(tiny.state, {}, ""));

  EXPECT_TRUE(fit.bool_or("fits", false));
  EXPECT_EQ(integer(fit, "max_context"), tiny_engine().summary().context_length);
  EXPECT_EQ(integer(fit, "weights_bytes"),
            static_cast<std::int64_t>(tiny_engine().summary().weight_bytes));
  EXPECT_EQ(integer(fit, "kv_budget_bytes"), 64 << 20);
  EXPECT_EQ(integer(fit, "usable_bytes"),
            static_cast<std::int64_t>(tiny_engine().summary().usable_bytes));
  EXPECT_GT(integer(fit, "fixed_bytes"), 0);
  EXPECT_EQ(fit.find("schemes")->as_array()->size(), 4u);
  ASSERT_NE(fit.find("measured_decode_tps"), nullptr);
  EXPECT_TRUE(fit.find("measured_decode_tps")->is_null());
}

TEST(Introspection, MeasuredRatesAreShownOnceThereAreAny_FIT_16) {
  TinyState tiny;
  Outcome outcome;
  outcome.stats.is_admitted = true;
  outcome.stats.prompt_tokens = 100;
  outcome.stats.generated_tokens = 11;
  outcome.stats.prefill_ms = 500;
  outcome.stats.decode_ms = 2000;
  tiny.state.metrics.add_outcome(outcome);

  const json::Value fit = body_of(fit_report(tiny.state, {}, ""));

  EXPECT_NEAR(fit.find("measured_decode_tps")->as_number().value_or(0), 5, 1e-9);
  EXPECT_NEAR(fit.find("measured_prefill_tps")->as_number().value_or(0), 200, 1e-9);
}

TEST(Introspection, StatsSayWhatAdmissionGoesBy_SRV_61) {
  TinyState tiny;

  const json::Value all = body_of(stats(tiny.state, {}, ""));
  const json::Value& admission = *all.find("admission");

  EXPECT_EQ(integer(admission, "max_safe_context"), tiny_engine().summary().context_length);
  EXPECT_EQ(integer(admission, "usable_bytes"),
            static_cast<std::int64_t>(tiny_engine().summary().usable_bytes));
  EXPECT_LE(integer(admission, "memory_budget_bytes"), 64 << 20);
}

TEST(Introspection, StatsNameHowEachLayerIsKept_SRV_61) {
  TinyState tiny;

  const json::Value kv_quant = *body_of(stats(tiny.state, {}, "")).find("kv_quant");

  EXPECT_EQ(kv_quant.string_or("mode", ""), "off");
  const json::Array& layers = *kv_quant.find("layers")->as_array();
  ASSERT_FALSE(layers.empty());
  for (const json::Value& layer : layers) EXPECT_EQ(*layer.as_string(), "bf16");
}

TEST(Introspection, PeopleReadTheInstructionSetAndFingerprintsTheNumerics) {
  TinyState tiny;

  const std::string backend = tiny_engine().summary().backend;

  EXPECT_THAT(backend, testing::MatchesRegex("cpu-[a-z0-9]+"));
  EXPECT_EQ(tiny_engine().summary().numerics, "cpu-2");
  EXPECT_EQ(body_of(stats(tiny.state, {}, "")).find("server")->string_or("backend", ""), backend);
  EXPECT_EQ(body_of(version(tiny.state, {}, "")).string_or("backend", ""), backend);
  EXPECT_THAT(metrics(tiny.state, {}, "").body, HasSubstr("backend=\"" + backend + "\""));
  EXPECT_THAT(list_models(tiny.state, {}, "").body, HasSubstr("\"" + backend + "\""));
}

TEST(Introspection, MetricsHaveEveryNameOfSrv60) {
  TinyState tiny;
  tiny.state.metrics.count_request("/health", 200);

  const std::string text = metrics(tiny.state, {}, "").body;

  for (const char* name : {"requests_total", "tokens_total", "rows", "queue_wait_seconds",
                           "first_token_seconds", "token_seconds", "step_seconds", "kv_blocks",
                           "cache_hits_total", "cache_bytes", "step_bytes_total", "build_info",
                           "deferrals_total", "step_tokens_total", "held", "spill_drops_total"})
    EXPECT_THAT(text, HasSubstr("# TYPE kvasir_" + std::string(name) + " ")) << name;
}

}  // namespace
}  // namespace kvasir::server
