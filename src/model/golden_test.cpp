// The reference checkpoints of the families on the oracle: logits within 1e-4 relative, greedy
// tokens equal (MOD-10…31).
#include "model/golden.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "backend/ref/ref_device.h"

namespace kvasir::model {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, LogitsAreWithinTheBarAndGreedyTokensEqual) {
  const auto folder = std::filesystem::path(KVASIR_GOLDEN_MODELS) / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const auto device = backend::ref::make_ref_device(backend::ref::RefMode::oracle);

  const auto results = check_golden(folder, *device, {});

  ASSERT_TRUE(results) << results.error().what;
  ASSERT_FALSE(results->empty());
  for (const GoldenResult& r : *results) {
    EXPECT_LE(r.relative_error, 1e-4) << "prompt " << r.prompt;
    EXPECT_EQ(r.n_greedy_equal, r.n_greedy) << "prompt " << r.prompt;
    EXPECT_EQ(r.n_greedy, 48u) << "prompt " << r.prompt;
    RecordProperty("relative_error_" + r.prompt, std::to_string(r.relative_error * 1e6) + "e-6");
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Golden,
                         testing::Values("llama",
                                         "llama3-rope",
                                         "llama-yarn",
                                         "mistral",
                                         "mixtral",
                                         "qwen2",
                                         "qwen3",
                                         "qwen3-moe",
                                         "phi3",
                                         "olmo2",
                                         "glm4",
                                         "glm4-moe",
                                         "granite",
                                         "smollm3",
                                         "llama-hd64",
                                         "llama-hd80",
                                         "llama-hd128",
                                         "llama-linear",
                                         "qwen3-hd256",
                                         "mistral-hd64",
                                         "phi3-longrope",
                                         "phi3-partial"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvasir::model
