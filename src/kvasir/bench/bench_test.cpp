#include "kvasir/bench.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kvasir/synth.h"

namespace kvasir::bench {
namespace {

constexpr const char* kHeadsOf64 = R"({"architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
  "head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 500,
  "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "bos_token_id": 498, "eos_token_id": 499})";

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

TEST(Bench, CountsTheBytesOfEncodedKeysFromWhereTheyAreRead) {
  const std::filesystem::path folder = testing::TempDir() + "kvasir_bench";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tiny.json") << kHeadsOf64;
  ASSERT_TRUE(synth::write({.config = folder / "tiny.json", .out = folder / "model"}));
  Options exact = of_model("llama");
  exact.open.model = folder / "model";
  Options late = exact, eager = exact;
  late.open.kv_quant = eager.open.kv_quant = "8";
  late.open.kv_start = "1000";
  eager.open.kv_start = "eager";
  double bytes[3] = {};
  for (int i = 0; const Options* options : {&exact, &late, &eager}) {
    const auto report = run(*options);
    ASSERT_TRUE(report.has_value()) << report.error().what;
    bytes[i++] = report->decode.bytes_per_token;
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_GT(bytes[0], bytes[2]);
  std::filesystem::remove_all(folder);
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
