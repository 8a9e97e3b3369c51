#include "fit/report.h"

#include <gtest/gtest.h>

#include "fit/memory.h"

namespace kvasir::fit {
namespace {

Facts some_facts() {
  Facts f;
  f.weight_bytes = 5'230'000'000;
  f.fixed_bytes = 41'200'000;
  f.step_token_bytes = 550'000;
  f.chunk = 512;
  f.max_positions = 131'072;
  f.state = {{.exact_bytes = 147'456}};
  f.weight_read_bytes = 4'000'000'000;
  f.all_read_bytes = 4'000'000'000;
  f.linear_flops = 8'000'000'000;
  f.reads = {{.state = 0, .flops_per_key = 1'000}};
  return f;
}
constexpr MachineSpeed kMachine{.bytes_per_second = 28e9, .flops_per_second = 4e12};

TEST(FitTexts, LoadIsRefusedByteForByte) {  // FIT-22, test 5
  const Status refused = check_load("qwen3-8b", some_facts(), 5'271'000'000);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::capacity);
  EXPECT_EQ(
      refused.error().what,
      "qwen3-8b does not fit: weights 5.23 GB + fixed 41.2 MB + one step 282 MB leave no room "
      "for any context in 5.27 GB. Try a smaller quantization, --kv-quant 4, or "
      "--memory-budget");
}

TEST(FitTexts, ShortContextsAreWarnedOf) {
  const Facts f = some_facts();
  const std::uint64_t usable = total_bytes(f, 1000);

  EXPECT_TRUE(check_load("m", f, usable));
  EXPECT_NE(short_context_warning("m", f, usable).find("context of only 10"), std::string::npos);
  EXPECT_EQ(short_context_warning("m", f, total_bytes(f, 4096)), "");

  Facts small = f;
  small.max_positions = 512;  // the model's own limit is no reason to warn
  EXPECT_EQ(short_context_warning("m", small, 64'000'000'000), "");
}

TEST(FitTexts, StartupLineSaysSizeSpeedAndContext) {  // FIT-23
  Facts f = some_facts();
  f.reads.clear();

  EXPECT_EQ(startup_line("Qwen/Qwen3-8B", f, kMachine, 40'960, true),
            "Qwen/Qwen3-8B · 5.23 GB · ~5.74 tok/s predicted · context 40960 (auto-picked)");
  EXPECT_EQ(startup_line("Qwen/Qwen3-8B", f, kMachine, 40'960, false),
            "Qwen/Qwen3-8B · 5.23 GB · ~5.74 tok/s predicted · context 40960");
}

TEST(FitTexts, AutoPickTakesTheLargestThatFits) {  // FIT-24
  const LocalModel models[] = {{"b", 5, true}, {"a", 9, false}, {"d", 7, true}, {"c", 7, true}};

  const auto picked = pick_model(models);
  const auto none = pick_model(std::span(models).subspan(1, 1));

  ASSERT_TRUE(picked);
  EXPECT_EQ(models[*picked].name, "c");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().what, "no local model fits; see kvasir ls");
}

TEST(FitSpeed, DecodeReadsWeightsOnceAStepAndEveryRowsState) {  // FIT-14, FIT-17
  const Facts f = some_facts();
  const double kv = 147'456.0 * 8192, weights = 4e9, bw = 28e9 * 0.82;

  EXPECT_NEAR(predicted_decode_tps(f, kMachine, 8192), bw / (weights + kv), 1e-9);
  EXPECT_NEAR(predicted_decode_tps(f, kMachine, 8192, 8), 8 * bw / (weights + 8 * kv), 1e-9);
}

TEST(FitSpeed, ExpertsAreReadAsManyAsTheStepMayChoose) {
  Facts f = some_facts();
  f.is_moe = true;
  f.weight_read_bytes = 1'000;
  f.more_read_bytes = 100;
  f.all_read_bytes = 1'750;
  f.reads.clear();

  EXPECT_EQ(weight_read_bytes(f, 1), 1'000u);
  EXPECT_EQ(weight_read_bytes(f, 4), 1'300u);
  EXPECT_EQ(weight_read_bytes(f, 100), 1'750u);
  EXPECT_NEAR(predicted_decode_tps(f, {.bytes_per_second = 1e6}, 10), 760, 1e-6);
  EXPECT_NEAR(predicted_decode_tps(f, {.bytes_per_second = 1e6, .efficiency = 0.5}, 10), 500, 1e-6);
}

TEST(FitSpeed, StateIsReadInItsFormAndWithinTheWindow) {
  Facts f;
  f.transition = 512;
  f.state = {{.exact_bytes = 100, .encoded_bytes = 30},
             {.exact_bytes = 100, .encoded_bytes = 0, .window = 64}};
  f.reads = {{0, 1}, {1, 1}, {1, 1}};  // the third borrows

  EXPECT_EQ(kv_read_bytes(f, 500), 100u * 500 + 2 * 100 * 64);
  EXPECT_EQ(kv_read_bytes(f, 512), 30u * 512 + 2 * 100 * 64);
}

TEST(FitSpeed, PrefillIsBoundByArithmeticOrByReading) {  // FIT-15
  const Facts f = some_facts();
  const double flops = 8e9 + 1'000 * (8192 + 1) / 2.0;
  const double bytes = (4e9 + 147'456.0 * 8192) / 512;

  EXPECT_NEAR(predicted_prefill_tps(f, kMachine, 8192), 0.82 * 4e12 / flops, 1e-6);
  EXPECT_NEAR(predicted_prefill_tps(f, {.bytes_per_second = 1e9, .flops_per_second = 1e15}, 8192),
              0.82 * 1e9 / bytes, 1e-6);
  EXPECT_EQ(predicted_prefill_tps(f, {}, 8192), 0);
}

TEST(FitReport, SaysWhatARowMayHoldAndHowManyHoldItTogether) {  // FIT-13
  Facts f = some_facts();
  const std::uint64_t usable = 12'000'000'000;
  FitReport all;
  all.report = make_report(f, kMachine, usable, 8192);
  const Report& r = all.report;

  EXPECT_EQ(r.max_context, max_context(f, usable)) << "one row alone";
  EXPECT_EQ(r.kv_budget, usable - 5'230'000'000 - 41'200'000 - 512 * 550'000);
  EXPECT_EQ(r.rows_at_once, 5u);
  EXPECT_LE(r.rows_at_once * r.kv_bytes, r.kv_budget);
  EXPECT_GT((r.rows_at_once + 1) * r.kv_bytes, r.kv_budget);
  const json::Value json = to_json(all);
  EXPECT_EQ(json.int_or("max_context", 0), static_cast<std::int64_t>(r.max_context));
  EXPECT_EQ(json.int_or("kv_budget_bytes", 0), static_cast<std::int64_t>(r.kv_budget));
  EXPECT_EQ(json.int_or("rows_at_once", 0), 5);
  const std::string text = to_text(all);
  EXPECT_NE(text.find("longest context   " + std::to_string(r.max_context)), std::string::npos);
  EXPECT_NE(text.find("5 requests of that context at once"), std::string::npos) << text;

  f.kv_budget_bytes = r.kv_bytes;
  EXPECT_EQ(make_report(f, kMachine, usable, 8192).rows_at_once, 1u);
  EXPECT_LT(make_report(f, kMachine, usable, 8192).max_context, r.max_context);
}

TEST(FitReport, SpeedsAreAtOneEightAndThirtyTwoThousandIfThatFits) {  // FIT-33
  const Facts f = some_facts();
  const auto contexts = [&](std::uint64_t limit) {
    std::vector<std::uint64_t> out;
    for (const SpeedAt& at : speeds_that_fit(f, kMachine, limit, 4)) out.push_back(at.context);
    return out;
  };
  using Contexts = std::vector<std::uint64_t>;

  EXPECT_EQ(contexts(131'072), (Contexts{1024, 8192, 32768}));
  EXPECT_EQ(contexts(32'768), (Contexts{1024, 8192, 32768}));
  EXPECT_EQ(contexts(32'767), (Contexts{1024, 8192}));
  EXPECT_EQ(contexts(1023), Contexts{});
  for (const SpeedAt& at : speeds_that_fit(f, kMachine, 32'768, 4)) {
    EXPECT_EQ(at.decode_tps, predicted_decode_tps(f, kMachine, at.context));
    EXPECT_EQ(at.batch_decode_tps, predicted_decode_tps(f, kMachine, at.context, 4));
    EXPECT_EQ(at.prefill_tps, predicted_prefill_tps(f, kMachine, at.context));
  }
}

TEST(FitReport, SaysTheSumsAndRawBytesInJson) {  // FIT-10, FIT-32, FIT-33
  const Facts f = some_facts();
  FitReport all;
  all.model = "m";
  all.scheme = "bf16";
  all.report = make_report(f, kMachine, 12'000'000'000, 8192);
  all.schemes = {{"exact", 100, ""}, {"turbo", 0, "layer 0 has head_dim 80"}};
  all.speeds = speeds_that_fit(f, kMachine, 8192, 8);

  const json::Value json = to_json(all);

  EXPECT_TRUE(all.report.fits);
  EXPECT_EQ(all.report.total_bytes,
            5'230'000'000u + 41'200'000 + 147'456ull * 8192 + 512 * 550'000);
  EXPECT_EQ(json.int_or("total_bytes", 0), static_cast<std::int64_t>(all.report.total_bytes));
  EXPECT_EQ(json.int_or("weights_bytes", 0), 5'230'000'000);
  EXPECT_EQ(all.speeds.size(), 2u);
  EXPECT_EQ(all.report.rows_at_once, all.report.kv_budget / all.report.kv_bytes);
  const std::string text = to_text(all);
  EXPECT_NE(text.find("5.23 GB"), std::string::npos) << text;
  EXPECT_NE(text.find("not applicable: layer 0 has head_dim 80"), std::string::npos) << text;
}

}  // namespace
}  // namespace kvasir::fit
