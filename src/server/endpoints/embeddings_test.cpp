// POST /v1/embeddings and Ollama's two over real sockets and the small checkpoints of tests/data
// (SRV-14, MOD-61).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "server/endpoints/testing/tiny_engine.h"
#include "server/http/testing/test_client.h"
#include "server/server.h"

namespace kvasir::server {
namespace {

using server::testing::post;
using server::testing::TestClient;
using server::testing::TestReply;
using ::testing::HasSubstr;

// Opened once a process.
Engine& embedding_engine() {
  static const std::unique_ptr<Engine> engine = [] {
    OpenOptions options;
    options.model = std::filesystem::path(KVASIR_TEST_DATA) / "models" / "bert";
    options.n_threads = 1;
    auto opened = Engine::open(options);
    KVASIR_CHECK(opened) << opened.error().what;
    return *std::move(opened);
  }();
  return *engine;
}

class EmbeddingsTest : public ::testing::Test {
 protected:
  void SetUp() override { serve(embedding_engine()); }
  void serve(Engine& engine) {
    ServeOptions options;
    options.port = 0;
    options.model_id = "tiny";
    auto server = Server::start(options);
    ASSERT_TRUE(server) << server.error().what;
    server_ = *std::move(server);
    server_->serve(engine);
  }
  TestReply ask(const std::string& body, const char* path = "/v1/embeddings") const {
    return TestClient(server_->port()).ask(post(path, body));
  }
  json::Value answer(const std::string& body, const char* path = "/v1/embeddings") const {
    const TestReply reply = ask(body, path);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return parsed(reply.body);
  }
  // The text and the field of a 400.
  std::string refusal(const std::string& body) const {
    const TestReply reply = ask(body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const json::Value error = *parsed(reply.body).find("error");
    EXPECT_EQ(error.string_or("type", ""), "invalid_request_error");
    return error.string_or("param", "-") + ": " + error.string_or("message", "");
  }
  std::unique_ptr<Server> server_;
};

std::vector<double> vector_of(const json::Value& body, std::size_t i) {
  std::vector<double> out;
  const json::Value& entry = body.find("data")->as_array()->at(i);
  EXPECT_EQ(*entry.find("index")->as_int(), static_cast<std::int64_t>(i));
  EXPECT_EQ(entry.string_or("object", ""), "embedding");
  for (const json::Value& x : *entry.find("embedding")->as_array()) out.push_back(*x.as_number());
  return out;
}

std::int64_t usage_of(const json::Value& body) {
  const json::Value& usage = *body.find("usage");
  EXPECT_EQ(*usage.find("prompt_tokens")->as_int(), *usage.find("total_tokens")->as_int());
  return *usage.find("prompt_tokens")->as_int();
}

TEST_F(EmbeddingsTest, AnswersStringsListsAndTokens_SRV14) {
  const json::Value one = answer(R"({"model":"tiny","input":"the river"})");
  EXPECT_EQ(one.string_or("object", ""), "list");
  EXPECT_EQ(one.string_or("model", ""), "tiny");
  EXPECT_EQ(usage_of(one), 4);  // [CLS] the river [SEP]
  const std::vector<double> river = vector_of(one, 0);
  ASSERT_EQ(river.size(), 64u);
  double squares = 0;
  for (const double x : river) squares += x * x;
  EXPECT_NEAR(squares, 1.0, 1e-6);

  const json::Value several = answer(R"({"input":["a tree","the river"],"user":"me"})");
  EXPECT_EQ(several.find("data")->as_array()->size(), 2u);
  EXPECT_EQ(vector_of(several, 1), river);

  const json::Value tokens = answer(R"({"input":[2,5,3]})");
  EXPECT_EQ(usage_of(tokens), 3);
  const json::Value both = answer(R"({"input":[[2,6,3],[2,5,3]]})");
  EXPECT_EQ(vector_of(both, 1), vector_of(tokens, 0));
}

TEST_F(EmbeddingsTest, Base64HoldsTheSameFloats_SRV14) {
  const std::vector<double> expected = vector_of(answer(R"({"input":"gold"})"), 0);
  const json::Value body = answer(R"({"input":"gold","encoding_format":"base64"})");
  const std::string text = body.find("data")->as_array()->at(0).string_or("embedding", "");
  ASSERT_EQ(text.size(), (64 * 4 + 2) / 3 * 4);
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k)
      word = word << 6 |
             (text[i + k] == '=' ? 0u : static_cast<std::uint32_t>(alphabet.find(text[i + k])));
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 255);
  }
  for (std::size_t i = 0; i < 64; ++i) {
    float x = 0;
    std::memcpy(&x, bytes.data() + 4 * i, 4);
    EXPECT_EQ(double{x}, expected[i]) << i;
  }
}

TEST_F(EmbeddingsTest, DimensionsAndInstruction_MOD61) {
  EXPECT_EQ(vector_of(answer(R"({"input":"gold","dimensions":8})"), 0).size(), 8u);
  EXPECT_EQ(vector_of(answer(R"({"input":"gold","instruction":"find"})"), 0),
            vector_of(answer(R"({"input":"Instruct: find\nQuery:gold"})"), 0));
}

TEST_F(EmbeddingsTest, RefusalsNameTheField_SRV2) {
  EXPECT_THAT(refusal(R"({})"), HasSubstr("input: input must be a string"));
  EXPECT_THAT(refusal(R"({"input":5})"), HasSubstr("input: input must be a string"));
  EXPECT_THAT(refusal(R"({"input":["a",7]})"), HasSubstr("input: input must be a string"));
  EXPECT_THAT(refusal(R"({"input":[1,"a"]})"), HasSubstr("input: input must be a string"));
  EXPECT_THAT(refusal(R"({"input":[[]]})"), HasSubstr("input: input must be a string"));
  EXPECT_EQ(refusal(R"({"input":""})"), "input: input must not be an empty string");
  EXPECT_EQ(refusal(R"({"input":[]})"), "input: input must not be empty");
  EXPECT_EQ(refusal(R"({"input":[2,288]})"), "input: input token id 288 is out of range");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":65})"),
            "dimensions: dimensions must be at most 64");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":0})"),
            "dimensions: dimensions must be at least 1");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":"8"})"),
            "dimensions: dimensions must be of type int");
  EXPECT_EQ(refusal(R"({"input":"a","encoding_format":"int8"})"),
            "encoding_format: encoding_format must be one of float, base64");
  EXPECT_EQ(refusal(R"({"input":"a","instruction":1})"),
            "instruction: instruction must be of type str");
  EXPECT_EQ(refusal(R"({"input":[2,3],"instruction":"x"})"),
            "instruction: instruction needs text inputs, not token ids");
  std::string many = R"({"input":["a")";
  for (int i = 0; i < 2048; ++i) many += R"(,"a")";
  EXPECT_EQ(refusal(many + "]}"), "input: input must have at most 2048 entries");
  EXPECT_EQ(ask("{").status, 400);
}

TEST_F(EmbeddingsTest, LongerThanTheContextIsRefused_MOD61) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a ";
  const TestReply reply = ask(R"({"input":["a",")" + text + R"("]})");
  EXPECT_EQ(reply.status, 400);
  const json::Value error = *parsed(reply.body).find("error");
  EXPECT_EQ(error.string_or("code", ""), "context_length_exceeded");
  EXPECT_EQ(error.string_or("param", ""), "input");
}

TEST_F(EmbeddingsTest, ManyInputsThanRowsAndQueueAreServed) {
  std::string body = R"({"input":["a")";
  for (int i = 1; i < 300; ++i) body += R"(,"number )" + std::to_string(i) + "\"";
  const json::Value all = answer(body + "]}");
  EXPECT_EQ(all.find("data")->as_array()->size(), 300u);
  EXPECT_EQ(vector_of(all, 299), vector_of(answer(R"({"input":"number 299"})"), 0));
}

TEST_F(EmbeddingsTest, OllamasFormsGiveTheSameVectors) {
  const std::vector<double> expected = vector_of(answer(R"({"input":"gold"})"), 0);
  const json::Value listed = answer(R"({"model":"tiny","input":["a","gold"]})", "/api/embed");
  const json::Array& vectors = *listed.find("embeddings")->as_array();
  ASSERT_EQ(vectors.size(), 2u);
  EXPECT_EQ(*vectors[1].as_array()->at(3).as_number(), expected[3]);
  EXPECT_EQ(*listed.find("prompt_eval_count")->as_int(), 3 + 3);
  const json::Value older = answer(R"({"prompt":"gold"})", "/api/embeddings");
  EXPECT_EQ(*older.find("embedding")->as_array()->at(3).as_number(), expected[3]);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a ";
  const json::Value cut = answer(R"({"input":")" + text + R"("})", "/api/embed");
  EXPECT_EQ(*cut.find("prompt_eval_count")->as_int(), 256);
  EXPECT_EQ(ask(R"({"input":")" + text + R"(","truncate":false})", "/api/embed").status, 400);
}

TEST_F(EmbeddingsTest, AClientThatLeavesCostsNobodyAnything_SRV7) {
  std::string body = R"({"input":["a")";
  for (int i = 1; i < 2000; ++i) body += R"(,"a long story about a king and a queen")";
  {
    TestClient leaving(server_->port());
    leaving.send(post("/v1/embeddings", body + "]}"));
  }
  EXPECT_TRUE(server::testing::within(std::chrono::seconds(10), [] {
    const engine::EngineSnapshot now = embedding_engine().snapshot();
    return now.active + now.preparing + now.queued == 0;
  }));
  EXPECT_EQ(vector_of(answer(R"({"input":"gold"})"), 0).size(), 64u);
}

TEST_F(EmbeddingsTest, AnEmbeddingModelGeneratesNothing) {
  const TestReply reply = TestClient(server_->port())
                              .ask(post("/v1/completions", R"({"prompt":"once","max_tokens":4})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("this model produces embeddings, not text"));
}

TEST_F(EmbeddingsTest, ClientsAreToldWhatTheModelDoes) {
  const auto body_of = [&](const std::string& request) {
    return parsed(TestClient(server_->port()).ask(request).body);
  };
  const json::Value model = body_of(server::testing::get("/v1/models/tiny"));
  EXPECT_TRUE(model.bool_or("embeddings", false));
  EXPECT_FALSE(model.bool_or("chat", true));
  const json::Value shown = body_of(post("/api/show", R"({"model":"tiny"})"));
  EXPECT_EQ(json::write(*shown.find("capabilities")), R"(["embedding"])");
  serve(tiny_engine());
  EXPECT_TRUE(body_of(server::testing::get("/v1/models/tiny")).bool_or("chat", false));
}

TEST_F(EmbeddingsTest, AGeneratorIsRefused_SRV14) {
  serve(tiny_engine());
  EXPECT_EQ(refusal(R"({"input":"x"})"), "model: this model does not produce embeddings");
  const TestReply ollama = ask(R"({"input":"x"})", "/api/embed");
  EXPECT_EQ(ollama.status, 400);
  EXPECT_EQ(ollama.body, R"({"error":"this model does not produce embeddings"})");
}

}  // namespace
}  // namespace kvasir::server
