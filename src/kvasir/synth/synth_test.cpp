// Checkpoints with random weights: what is written is what models read, and says what it is.
#include "kvasir/synth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "formats/inspect.h"
#include "formats/safetensors.h"
#include "kvasir/kvasir.h"
#include "kvasir/synth/random_rows.h"
#include "kvasir/verify/prompt_logits.h"

namespace kvasir::synth {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTiny = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500,
  "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "bos_token_id": 498, "eos_token_id": [499, 497]})";

class Synth : public testing::Test {
 protected:
  Synth() {
    std::string pattern = (fs::temp_directory_path() / "kvasir_synth_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    write_config(kTiny);
  }
  ~Synth() override {
    std::error_code ec;
    fs::remove_all(folder_, ec);
  }
  void write_config(const std::string& text) const { std::ofstream(folder_ / "tiny.json") << text; }
  Options options(const char* quant, const char* out) const {
    return {.config = (folder_ / "tiny.json").string(),
            .quant = quant,
            .group_size = 32,
            .seed = 3,
            .out = folder_ / out,
            .n_threads = 2};
  }
  std::string weights(const char* out) const {
    return *read_file(folder_ / out / "model.safetensors", 1 << 24);
  }
  std::unique_ptr<Engine> open(const char* out) const {
    OpenOptions open;
    open.model = folder_ / out;
    open.n_threads = 1;
    open.kv_budget_bytes = 16 << 20;
    auto engine = Engine::open(open);
    EXPECT_TRUE(engine) << engine.error().what;
    return engine ? *std::move(engine) : nullptr;
  }

  fs::path folder_;
};

// Tokens that come with finite log-probabilities.
std::size_t n_sound_tokens(Engine& engine) {
  GenerateRequest request;
  request.prompt = "a lighthouse";
  request.max_tokens = 8;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = true;
  const auto made = engine.generate(request, {});
  EXPECT_TRUE(made) << made.error().what;
  const auto& choice = made->choices.front();
  EXPECT_EQ(choice.finish_reason, "length");
  return static_cast<std::size_t>(
      std::count_if(choice.logprobs.begin(), choice.logprobs.end(),
                    [](const auto& l) { return std::isfinite(l.logprob); }));
}

TEST_F(Synth, EveryTypeIsWrittenReadAndRuns) {
  const struct {
    const char *quant, *out, *type;
  } kCases[] = {{"bf16", "bf16", "bf16"},      {"f16", "f16", "f16"},
                {"f32", "f32", "f32"},         {"4", "a4", "affine4g32"},
                {"8", "a8", "affine8g32"},     {"q4_0", "q40.gguf", "q4_0"},
                {"q4_1", "q41.gguf", "q4_1"},  {"q8_0", "q80.gguf", "q8_0"},
                {"bf16", "bf16.gguf", "bf16"}, {"f16", "f16.gguf", "f16"}};
  for (const auto& c : kCases) {
    const auto made = write(options(c.quant, c.out));
    ASSERT_TRUE(made) << c.out << ": " << made.error().what;
    const auto files = formats::ModelFiles::open(folder_ / c.out);
    ASSERT_TRUE(files) << files.error().what;

    EXPECT_EQ(made->n_parameters, formats::describe(*files).n_parameters) << c.out;
    EXPECT_EQ(made->size_bytes, formats::describe(*files).size_bytes) << c.out;
    EXPECT_EQ(files->find("model.layers.1.mlp.down_proj.weight")->type, c.type) << c.out;
    EXPECT_TRUE(files->has_random_weights()) << c.out;
    const auto engine = open(c.out);
    ASSERT_TRUE(engine);
    EXPECT_TRUE(engine->summary().has_random_weights) << c.out;
    EXPECT_NE(engine->startup_line().find("random weights"), std::string::npos);
    EXPECT_EQ(n_sound_tokens(*engine), 8u) << c.out;
  }
}

TEST_F(Synth, InspectSaysThatWeightsAreRandom) {
  ASSERT_TRUE(write(options("4", "a4")));
  const auto files = formats::ModelFiles::open(folder_ / "a4");
  ASSERT_TRUE(files);

  const auto description = formats::describe(*files);

  EXPECT_NE(formats::description_text(description, false).find("weights         random"),
            std::string::npos);
  EXPECT_TRUE(formats::description_json(description, false).bool_or("random_weights", false));
}

TEST_F(Synth, TheSeedDecidesEveryByteAndThreadsNone) {
  Options one = options("8", "one"), other = options("8", "other"), seeded = options("8", "seeded");
  other.n_threads = 1;
  seeded.seed = 4;
  ASSERT_TRUE(write(one) && write(other) && write(seeded));

  EXPECT_EQ(weights("one"), weights("other"));
  EXPECT_NE(weights("one"), weights("seeded"));
}

TEST_F(Synth, TextGoesToIdsOfTheVocabularyAndBack) {
  ASSERT_TRUE(write(options("bf16", "folder")) && write(options("bf16", "file.gguf")));
  for (const char* const out : {"folder", "file.gguf"}) {
    const auto engine = open(out);
    ASSERT_TRUE(engine);
    const std::string text = "Three grey geese; naïve 雁, 3 times.\n";

    const auto pieces = engine->tokenize(text, false, true);

    ASSERT_TRUE(pieces);
    std::vector<TokenId> ids;
    for (const TokenPiece& piece : *pieces) ids.push_back(piece.id);
    EXPECT_EQ(engine->detokenize(ids), text) << out;
    EXPECT_LT(ids.size(), text.size());
    EXPECT_EQ(engine->summary().eos_token, "<|eos|>") << out;
    EXPECT_EQ(engine->token_piece(499), "<|eos|>") << out;
    EXPECT_TRUE(engine->summary().has_chat_template()) << out;
  }
}

TEST_F(Synth, WhatCannotBeWrittenIsRefusedAndLeavesNothing) {
  ASSERT_TRUE(write(options("bf16", "there")));
  Options unknown = options("bf16", "new");
  unknown.config = "no-such-shape";
  Options group = options("4", "new");
  group.group_size = 48;

  for (const Options& o : {options("bf16", "there"), unknown, group, options("q4_0", "new"),
                           options("4", "new.gguf"), options("5", "new")})
    EXPECT_FALSE(write(o)) << o.quant << " " << o.out;
  write_config(R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"})");
  EXPECT_FALSE(write(options("bf16", "new")));
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  EXPECT_FALSE(fs::exists(folder_ / "new.gguf"));
  EXPECT_FALSE(fs::exists(folder_ / "new.partial"));
}

TEST(SynthRows, AreNearlyNormalWhateverTheirLength) {
  const RandomRows rows(1, "name", {.mean = 2.0f, .deviation = 0.5f});
  double sum = 0, squares = 0;
  constexpr int kRows = 400;
  constexpr std::size_t kLength = 101;
  for (int r = 0; r < kRows; ++r) {
    std::vector<float> row(kLength);
    rows.fill(static_cast<std::uint32_t>(r), row);
    for (const float x : row) {
      sum += x - 2.0;
      squares += (x - 2.0) * (x - 2.0);
    }
  }
  const double n = kRows * kLength;
  EXPECT_NEAR(sum / n, 0.0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 0.25, 0.01);
}

// Every family: the list of its own loader, for each kind of its reference checkpoints.
class SynthFamilies : public testing::TestWithParam<const char*> {};

TEST_P(SynthFamilies, LoadAndGiveFiniteLogits) {
  const fs::path goldens = KVASIR_GOLDEN_MODELS;
  if (!fs::exists(goldens)) GTEST_SKIP() << "no " << goldens;
  std::string pattern = (fs::temp_directory_path() / "kvasir_synth_XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  std::size_t n = 0;
  for (const auto& entry : fs::directory_iterator(goldens)) {
    if (!fs::exists(entry.path() / "golden.safetensors")) continue;
    const std::string name = entry.path().filename().string();
    const auto made = write({.config = entry.path().string(),
                             .quant = GetParam(),
                             .group_size = 32,
                             .out = folder / name});
    ASSERT_TRUE(made) << name << ": " << made.error().what;
    for (const char* const beside : {"golden.safetensors", "1_Pooling"}) {
      if (fs::exists(entry.path() / beside))
        fs::copy(entry.path() / beside, folder / name / beside, fs::copy_options::recursive);
    }
    const auto device = make_device(Backend::cpu, 1, "auto");
    ASSERT_TRUE(device);

    const auto prompts = verify::prompt_logits(folder / name, **device, DType::bf16);

    ASSERT_TRUE(prompts) << name << ": " << prompts.error().what;
    for (const auto& prompt : *prompts)
      ASSERT_TRUE(std::all_of(prompt.logits.begin(), prompt.logits.end(), [](float x) {
        return std::isfinite(x);
      })) << name;
    ++n;
  }
  fs::remove_all(folder);
  // All of the shared ones, or the few that are kept with the tests.
  const bool has_all = fs::exists(fs::path(KVASIR_SHARED) / "goldens" / "models.tar.xz");
  EXPECT_GE(n, has_all ? 43u : 5u);
}
INSTANTIATE_TEST_SUITE_P(Types, SynthFamilies, testing::Values("bf16", "4"));

}  // namespace
}  // namespace kvasir::synth
