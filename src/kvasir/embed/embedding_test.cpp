// Embeddings from text to vector (MOD-61, SRV-95), on the small checkpoints of tests/data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

#include "base/file.h"
#include "formats/safetensors.h"
#include "kvasir/embed/embedder.h"
#include "kvasir/kvasir.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kModels = fs::path(KVASIR_TEST_DATA) / "models";

OpenOptions options_of(const fs::path& model, Backend backend = Backend::cpu) {
  OpenOptions options;
  options.model = model;
  options.backend = backend;
  options.n_threads = 2;
  options.kv_budget_bytes = 64 << 20;
  return options;
}

std::unique_ptr<Engine> open(const char* name, Backend backend = Backend::cpu) {
  auto engine = Engine::open(options_of(kModels / name, backend));
  EXPECT_TRUE(engine) << engine.error().what;
  return engine ? *std::move(engine) : nullptr;
}

EmbedRequest texts(std::vector<std::string> inputs) {
  EmbedRequest request;
  for (std::string& input : inputs) request.inputs.push_back({std::move(input), {}});
  return request;
}

std::vector<float> vector_of(Engine& engine, const std::string& text) {
  const auto embedded = engine.embed(texts({text}));
  EXPECT_TRUE(embedded) << embedded.error().what;
  return embedded ? embedded->vectors.at(0) : std::vector<float>();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double length_of(const std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += double{x} * double{x};
  return std::sqrt(squares);
}

// A copy of a checkpoint that a test changes.
class Copy {
 public:
  explicit Copy(const char* name) {
    std::string pattern = (fs::temp_directory_path() / "kvasir_embed_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    fs::copy(kModels / name, path_, fs::copy_options::recursive);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void replace(const char* file, std::string_view from, std::string_view to) const {
    std::string text = *read_file(path_ / file, 1 << 20);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(path_ / file) << text.replace(at, from.size(), to);
  }

 private:
  fs::path path_;
};

class Embeddings : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models,
                         Embeddings,
                         testing::Values("qwen3-embed", "bert", "modernbert"),
                         [](const auto& i) {
                           return i.param == std::string("qwen3-embed") ? "qwen3_embed" : i.param;
                         });

TEST_P(Embeddings, HaveLengthOneAndDoNotDependOnTheirCompany_MOD61) {
  const auto engine = open(GetParam());
  std::vector<std::string> inputs{"the river", "a long summer in the old city by the ocean",
                                  "how fast can a horse run?", "x", "the river"};
  for (int i = 0; i < 20; ++i) inputs.push_back("number " + std::to_string(i * 37));

  const auto together = engine->embed(texts(inputs));

  ASSERT_TRUE(together) << together.error().what;
  ASSERT_EQ(together->vectors.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(together->vectors[i].size(), 64u);
    EXPECT_NEAR(length_of(together->vectors[i]), 1.0, 1e-6);
    EXPECT_TRUE(same_bits(together->vectors[i], vector_of(*engine, inputs[i]))) << inputs[i];
  }
  EXPECT_TRUE(same_bits(together->vectors[0], together->vectors[4]));
  EXPECT_FALSE(same_bits(together->vectors[0], together->vectors[1]));
}

TEST_P(Embeddings, FewerDimensionsAreTheFirstOnesNormalisedAgain_MOD61) {
  const auto engine = open(GetParam());
  const std::vector<float> whole = vector_of(*engine, "a question");
  EmbedRequest request = texts({"a question"});
  request.dimensions = 16;

  const auto embedded = engine->embed(request);

  ASSERT_TRUE(embedded) << embedded.error().what;
  const std::vector<float>& v = embedded->vectors[0];
  ASSERT_EQ(v.size(), 16u);
  EXPECT_NEAR(length_of(v), 1.0, 1e-6);
  const double scale = length_of({whole.begin(), whole.begin() + 16});
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(v[i], whole[i] / scale, 1e-6);
  for (const std::uint32_t bad : {0u, 65u}) {
    request.dimensions = bad;
    EXPECT_EQ(engine->embed(request).error().what, "dimensions must be 1 to 64");
  }
}

TEST_P(Embeddings, LongerThanTheContextIsRefusedOrCut_MOD61) {
  const auto engine = open(GetParam());
  const std::uint32_t context = engine->summary().context_length;
  std::string text;
  for (std::uint32_t i = 0; i < context; ++i) text += "a ";

  const auto refused = engine->embed(texts({"short", text}));
  EmbedRequest cut = texts({text});
  cut.truncates = true;
  const auto embedded = engine->embed(cut);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "context_length_exceeded");
  ASSERT_TRUE(embedded) << embedded.error().what;
  EXPECT_EQ(embedded->prompt_tokens, context);
}

TEST_P(Embeddings, AGenerationIsRefused) {
  const auto engine = open(GetParam());
  GenerateRequest request;
  request.prompt = "once";
  EXPECT_EQ(engine->generate(request, {}).error().what, "this model produces embeddings, not text");
}

TEST(Embedding, OfAGeneratorIsRefused_SRV14) {
  Copy model("qwen3-embed");  // its tokenizer; the model is another
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(kModels / "llama" / file, model.path() / file,
                  fs::copy_options::overwrite_existing);
  fs::remove_all(model.path() / "1_Pooling");
  const auto engine = Engine::open(options_of(model.path()));
  ASSERT_TRUE(engine) << engine.error().what;
  EXPECT_EQ((*engine)->embed(texts({"x"})).error().what, "this model does not produce embeddings");
  EXPECT_EQ((*engine)->summary().embedding_width, 0u);
}

TEST(Embedding, EndsWithTheEndTokenOnceHoweverItIsGiven_MOD17) {
  const auto engine = open("qwen3-embed");
  const std::vector<float> expected = vector_of(*engine, "hi");
  const auto of_tokens = [&](std::vector<TokenId> tokens) {
    EmbedRequest request;
    request.inputs = {{"", std::move(tokens)}};
    const auto embedded = engine->embed(request);
    EXPECT_EQ(embedded->prompt_tokens, 3u);
    return embedded->vectors.at(0);
  };
  EXPECT_TRUE(same_bits(of_tokens({'h', 'i'}), expected));
  EXPECT_TRUE(same_bits(of_tokens({'h', 'i', 256}), expected));

  // A tokenizer that adds nothing: its eos it is.
  Copy model("qwen3-embed");
  const std::string tokenizer = *read_file(model.path() / "tokenizer.json", 1 << 20);
  json::Value plain = *json::parse(tokenizer);
  (*plain.as_object())["post_processor"] = nullptr;
  std::ofstream(model.path() / "tokenizer.json") << json::write(plain);
  model.replace("tokenizer_config.json", "<|im_end|>", "<|endoftext|>");
  const auto other = Engine::open(options_of(model.path()));
  ASSERT_TRUE(other) << other.error().what;
  EXPECT_TRUE(same_bits(vector_of(**other, "hi"), expected));
}

TEST(Embedding, AnInstructionMakesAQuery_MOD61) {
  const auto engine = open("qwen3-embed");
  EmbedRequest query = texts({"what is gold?"});
  query.instruction = "Find the answer";

  const auto embedded = engine->embed(query);

  ASSERT_TRUE(embedded) << embedded.error().what;
  EXPECT_TRUE(same_bits(embedded->vectors[0],
                        vector_of(*engine, "Instruct: Find the answer\nQuery:what is gold?")));
  query.inputs.push_back({"", {1, 2}});
  EXPECT_THAT(engine->embed(query).error().what, HasSubstr("instruction"));
}

TEST(Embedding, TextNeverBecomesASpecialToken) {
  const auto engine = open("qwen3-embed");
  const auto embedded = engine->embed(texts({"<|endoftext|>"}));
  ASSERT_TRUE(embedded) << embedded.error().what;
  EXPECT_EQ(embedded->prompt_tokens, 14u);  // 13 bytes, and the end token
}

TEST(Embedding, PoolsAsTheModelSays_MOD61) {
  const auto mean = open("bert", Backend::ref);  // nothing said
  Copy model("bert");
  fs::create_directory(model.path() / "1_Pooling");
  std::ofstream(model.path() / "1_Pooling/config.json") << R"({"pooling_mode_cls_token": true})";
  const auto cls = Engine::open(options_of(model.path(), Backend::ref));
  ASSERT_TRUE(cls) << cls.error().what;
  EXPECT_FALSE(same_bits(vector_of(*mean, "the sea"), vector_of(**cls, "the sea")));
  // [CLS] and [SEP] alone have rows of their own; [CLS]'s is the first.
  EXPECT_EQ((*cls)->embed(texts({""}))->prompt_tokens, 2u);
}

// From the reference's hidden rows to its vectors, by hand.
TEST(Embedding, IsThePooledReference_MOD61) {
  for (const auto& [name, pools_all] : {std::pair("bert", true), std::pair("modernbert", false)}) {
    const auto file = formats::SafetensorsFile::open(kModels / name / "golden.safetensors");
    ASSERT_TRUE(file) << file.error().what;
    const auto& prompt = *file->find("prompt_1");
    const auto& hidden = *file->find("hidden_1");
    EmbedRequest request;
    request.inputs.resize(1);
    request.inputs[0].tokens.resize(prompt.bytes.size() / 4);
    std::memcpy(request.inputs[0].tokens.data(), prompt.bytes.data(), prompt.bytes.size());
    std::vector<float> rows(hidden.bytes.size() / 4);
    std::memcpy(rows.data(), hidden.bytes.data(), hidden.bytes.size());
    std::vector<double> expected(64);
    for (std::size_t i = 0; i < (pools_all ? rows.size() : 64); ++i)
      expected[i % 64] += double{rows[i]};
    double squares = 0;
    for (const double x : expected) squares += x * x;

    const auto embedded = open(name, Backend::ref)->embed(request);

    ASSERT_TRUE(embedded) << embedded.error().what;
    for (std::size_t i = 0; i < 64; ++i)
      EXPECT_NEAR(embedded->vectors[0][i], expected[i] / std::sqrt(squares), 1e-5) << name << i;
  }
}

TEST(Embedding, RefusesWhatCannotBeFed) {
  const auto engine = open("bert");
  EmbedRequest request;
  EXPECT_EQ(engine->embed(request).error().what, "input must not be empty");
  request.inputs = {{"", {2, 288, 3}}};
  EXPECT_EQ(engine->embed(request).error().what, "input token id 288 is out of range");
}

TEST(Embedding, ACancelledRequestEndsAndOthersGoOn) {
  const auto engine = open("bert");
  const std::vector<float> expected = vector_of(*engine, "the river");
  std::vector<std::string> many(2000, "a long story about a king and a queen and the ocean");
  std::latch ended(1);
  std::atomic<bool> was_cancelled{false};

  const auto started = engine->start_embedding(texts(many), [&](EmbeddingEnd end) {
    was_cancelled = end.outcome.cancelled() != nullptr && end.embedded.vectors.empty();
    ended.count_down();
  });
  ASSERT_TRUE(started) << started.error().what;
  engine->cancel(*started, CancelReason::consumer_closed);
  ended.wait();

  EXPECT_TRUE(was_cancelled);
  EXPECT_TRUE(same_bits(vector_of(*engine, "the river"), expected));
  EXPECT_EQ(engine->snapshot().preparing, 0u);
}

TEST(Embedding, RequestsFromManyThreadsGetTheirOwnVectors) {
  const auto engine = open("modernbert");
  std::vector<std::vector<float>> expected, got(8);
  for (std::size_t i = 0; i < got.size(); ++i)
    expected.push_back(vector_of(*engine, "text " + std::to_string(i)));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] { got[i] = vector_of(*engine, "text " + std::to_string(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
}

// Portions of rows, as chunks bring them, change nothing.
TEST(Pooler, TakesRowsInAnyPortions) {
  const std::vector<float> rows{1, 2, 3, 4, 5, 7};  // [3, 2]
  const auto pool = [&](formats::Pooling pooling, std::size_t portion) {
    Pooler pooler(pooling, 2);
    for (std::size_t r = 0; r < 3; r += portion) {
      const std::size_t n = std::min(portion, 3 - r);
      pooler.add({.first = r, .width = 2, .values = std::span(rows).subspan(r * 2, n * 2)});
    }
    return pooler.vector({});
  };
  const auto unit = [](double x, double y) {
    const double n = std::hypot(x, y);
    return ElementsAre(static_cast<float>(x / n), static_cast<float>(y / n));
  };
  for (const std::size_t portion : {1u, 2u, 3u}) {
    EXPECT_THAT(pool(formats::Pooling::mean, portion), unit(9, 13));
    EXPECT_THAT(pool(formats::Pooling::cls, portion), unit(1, 2));
    EXPECT_THAT(pool(formats::Pooling::last, portion), unit(5, 7));
  }
}

}  // namespace
}  // namespace kvasir
