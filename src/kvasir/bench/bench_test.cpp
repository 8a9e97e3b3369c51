#include "kvasir/bench.h"

#include <gtest/gtest.h>

namespace kvasir::bench {
namespace {

Options of_model(const char* name) {
  Options options;
  options.open.model = std::string(KVASIR_TEST_DATA) + "/models/" + name;
  options.open.backend = Backend::cpu;
  options.n_prefill = 20;
  options.n_decode = 3;
  options.n_rows = 2;
  options.n_runs = 1;
  return options;
}

TEST(Bench, CountsTokensAndWork) {
  const auto report = run(of_model("llama"));
  ASSERT_TRUE(report.has_value()) << report.error().what;
  EXPECT_GT(report->prefill.tokens_per_second, 0);
  EXPECT_GT(report->decode.bytes_per_token, 0);
  EXPECT_TRUE(report->prefill.ops.empty());
}

TEST(Bench, TimesEveryOperation) {
  Options options = of_model("llama");
  options.by_op = true;
  const auto report = run(options);
  ASSERT_TRUE(report.has_value()) << report.error().what;
  for (const Phase& phase : {report->prefill, report->decode}) {
    double share = 0, share_of_products = 0;
    bool has_attention = false;
    for (const OpShare& op : phase.ops) {
      share += op.share_of_time;
      if (op.name == "attention") has_attention = op.share_of_float > 0 && op.share_of_read > 0;
      if (op.name == "gated_mlp") share_of_products = op.share_of_float;
    }
    EXPECT_TRUE(has_attention);
    EXPECT_GT(share_of_products, 0);
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
  }
  // Prefill's steps and decode's are told apart: three steps of decode, an attention a layer.
  const auto attention_calls = [](const Phase& phase) {
    for (const OpShare& op : phase.ops)
      if (op.name == "attention") return op.n_calls;
    return 0.0;
  };
  EXPECT_EQ(attention_calls(report->decode), 3 * attention_calls(report->prefill));
}

}  // namespace
}  // namespace kvasir::bench
