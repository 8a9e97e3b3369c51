// --activations int8 on whole models: random weights of 4 and 8 bits in the shapes of goldens,
// whose prompts are fed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "backend/cpu/isa.h"
#include "kvasir/synth.h"
#include "kvasir/verify.h"
#include "kvasir/verify/prompt_logits.h"

namespace kvasir::verify {
namespace {

namespace fs = std::filesystem;

class Int8Model : public testing::TestWithParam<const char*> {
 protected:
  Int8Model() {
    std::string pattern = (fs::temp_directory_path() / "kvasir_int8_XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Int8Model() override {
    std::error_code ec;
    fs::remove_all(root_, ec);
  }
  // A golden's shape and prompts, other weights.
  fs::path checkpoint(const char* golden) const {
    const fs::path from = fs::path(KVASIR_GOLDEN_MODELS) / golden, to = root_ / golden;
    const auto made = synth::write({.config = from.string(),
                                    .quant = GetParam(),
                                    .group_size = 32,
                                    .seed = 5,
                                    .out = to,
                                    .n_threads = 2});
    EXPECT_TRUE(made) << made.error().what;
    fs::copy_file(from / "golden.safetensors", to / "golden.safetensors");
    return to;
  }
  static std::vector<PromptLogits> logits(const fs::path& model,
                                          Backend backend,
                                          const std::string& isa,
                                          const std::string& activations) {
    const auto device = make_device(backend, 2, isa, {.activations = activations});
    EXPECT_TRUE(device) << device.error().what;
    const auto got = prompt_logits(model, **device, DType::bf16);
    EXPECT_TRUE(got) << got.error().what;
    return *got;
  }

  fs::path root_;
};

INSTANTIATE_TEST_SUITE_P(Bits, Int8Model, testing::Values("4", "8"), [](const auto& i) {
  return std::string(i.param);
});

TEST_P(Int8Model, EveryProductEqualsTheMirrorsAndFaultsAreNoticed) {
  checkpoint("llama");
  checkpoint("qwen3-moe");
  const GoldenOptions options{.folder = root_,
                              .only = {},
                              .backend = Backend::cpu,
                              .n_threads = 2,
                              .isa = "auto",
                              .activations = "int8"};
  std::string lines;

  const auto summary = goldens(options, [&](const std::string& line) { lines += line + "\n"; });

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_failed, 0u) << lines;
}

TEST_P(Int8Model, SameBitsWhateverHappensAroundARequest) {
  SameBitsOptions options;
  options.open.model = checkpoint("llama");
  options.open.backend = Backend::cpu;
  options.open.activations = "int8";
  options.open.n_threads = 2;
  options.n_generate = 6;

  const auto summary = same_bits(options, [](const std::string&) {});

  ASSERT_TRUE(summary) << summary.error().what;
  EXPECT_EQ(summary->n_failed, 0u) << summary->text;
  EXPECT_GT(summary->n_checked, 100u);
}

// A mixture too: experts take 8-bit rows, the router does not.
TEST_P(Int8Model, InstructionSetsGiveOneSetOfLogits) {
  for (const char* name : {"llama", "qwen3-moe"}) {
    const fs::path model = checkpoint(name);
    const auto expected = logits(model, Backend::cpu, "portable", "int8");
    for (const auto isa : backend::cpu::kIsas) {
      if (!backend::cpu::cpu_supports(isa)) continue;
      const auto got = logits(model, Backend::cpu, std::string(backend::cpu::name_of(isa)), "int8");
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].logits, expected[i].logits) << name << " " << i;
    }
  }
}

// Of a dense model: in a mixture a router's near tie may fall to another expert.
TEST_P(Int8Model, LogitsAreNearTheExactModes) {
  const fs::path model = checkpoint("llama");
  const auto got = logits(model, Backend::cpu, "auto", "int8"),
             exact = logits(model, Backend::cpu, "auto", "exact");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LT(relative_error(got[i], exact[i]), 0.2) << i;
    EXPECT_GT(relative_error(got[i], exact[i]), 1e-4) << i;
  }
}

TEST(Activations, AreOfTheCpuBackendAndItsMirrorAlone) {
  EXPECT_FALSE(make_device(Backend::ref, 1, "auto", {.activations = "int8"}));
  EXPECT_FALSE(make_device(Backend::cpu, 1, "auto", {.activations = "int4"}));
  EXPECT_TRUE(make_device(Backend::ref_mirror, 1, "auto", {.activations = "int8"}));
}

}  // namespace
}  // namespace kvasir::verify
