// Encoders and trunks (MOD-17, MOD-37, MOD-38, MOD-61): a row's bits are its own, and what would
// make an encoder something else shows in its golden.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "backend/ref/ref_device.h"
#include "base/file.h"
#include "model/detail/decoder_weights.h"
#include "model/families.h"
#include "model/golden.h"
#include "model/model.h"
#include "model/testing/model_folder.h"
#include "ops/op_table.h"

namespace kvasir::model {
namespace {

const std::filesystem::path kModels = std::filesystem::path(KVASIR_TEST_DATA) / "models";

std::unique_ptr<ops::Device> oracle() {
  return backend::ref::make_ref_device(backend::ref::RefMode::oracle);
}

// The oracle with its lookups and its attention changed.
class FaultyDevice final : public ops::Device {
 public:
  std::function<void(ops::EmbedArgs&)> on_embed = [](auto&) {};
  std::function<void(ops::AttentionArgs&)> on_attention = [](auto&) {};

  FaultyDevice() {
    using T = ops::OpTable;
    table_.layer_norm = forward<&T::layer_norm>;
    table_.linear = forward<&T::linear>;
    table_.rope = forward<&T::rope>;
    table_.kv_append = forward<&T::kv_append>;
    table_.act_mul = forward<&T::act_mul>;
    table_.add_scaled = forward<&T::add_scaled>;
    table_.gather_rows = forward<&T::gather_rows>;
    table_.embed = [](ops::Device& device, const ops::EmbedArgs& args) noexcept {
      ops::EmbedArgs wrong = args;
      static_cast<FaultyDevice&>(device).on_embed(wrong);
      forward<&T::embed>(device, wrong);
    };
    table_.attention = [](ops::Device& device, const ops::AttentionArgs& args) noexcept {
      ops::AttentionArgs wrong = args;
      static_cast<FaultyDevice&>(device).on_attention(wrong);
      forward<&T::attention>(device, wrong);
    };
  }
  std::string_view name() const noexcept override { return inner_->name(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  const ops::OpTable& ops() const noexcept override { return table_; }
  bool is_exact() const noexcept override { return true; }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind kind) override {
    return inner_->allocate(size_bytes, kind);
  }
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override {
    return inner_->pack(weight, options);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    inner_->copy(to, from, size_bytes);
  }

 private:
  template <auto Member, class Args>
  static void forward(ops::Device& device, const Args& args) noexcept {
    ops::Device& inner = *static_cast<FaultyDevice&>(device).inner_;
    (inner.ops().*Member)(inner, args);
  }

  std::unique_ptr<ops::Device> inner_ = oracle();
  ops::OpTable table_;
};

// Of the prompt of 37 tokens.
double error_of(const char* name, ops::Device& device) {
  const auto results = check_golden(kModels / name, device, {});
  EXPECT_TRUE(results) << results.error().what;
  return results ? (*results)[1].relative_error : 0.0;
}

TEST(Encoder, MatchesItsGoldenOnTheOracle_MOD37_MOD38) {
  EXPECT_LE(error_of("bert", *oracle()), 1e-4);
  EXPECT_LE(error_of("modernbert", *oracle()), 1e-4);
}

TEST(Encoder, ATrunkMatchesItsGoldenInAnyChunks_MOD17) {
  for (const std::uint32_t chunk : {0u, 1u, 7u, 64u}) {
    const auto results = check_golden(kModels / "qwen3-embed", *oracle(), {.chunk_tokens = chunk});
    ASSERT_TRUE(results) << results.error().what;
    for (const GoldenResult& r : *results) EXPECT_LE(r.relative_error, 1e-4) << chunk;
  }
}

TEST(Encoder, CausalAttentionFailsTheGolden) {
  FaultyDevice device;
  device.on_attention = [](ops::AttentionArgs& args) { args.both_ways = false; };
  EXPECT_GT(error_of("bert", device), 1e-2);
  EXPECT_GT(error_of("modernbert", device), 1e-2);
}

TEST(Encoder, AWindowThatIsOneKeyWiderFailsTheGolden_MOD38) {
  FaultyDevice device;
  device.on_attention = [](ops::AttentionArgs& args) { args.kv.window += args.kv.window ? 1 : 0; };
  EXPECT_GT(error_of("modernbert", device), 1e-3);
}

TEST(Encoder, APositionPlusOneFailsTheGolden_MOD37) {
  FaultyDevice device;
  std::vector<std::uint32_t> late;
  bool is_positions = false;  // looked up after the tokens
  device.on_embed = [&](ops::EmbedArgs& args) {
    if (std::exchange(is_positions, !is_positions)) {
      late.assign(args.tokens.begin(), args.tokens.end());
      for (std::uint32_t& position : late) ++position;
      args.tokens = late;
    }
  };
  EXPECT_GT(error_of("bert", device), 1e-2);
}

struct Rows {
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> positions;
};

Rows rows_of(std::initializer_list<std::uint32_t> lengths, std::uint32_t vocab) {
  Rows out;
  for (const std::uint32_t length : lengths) {
    for (std::uint32_t i = 0; i < length; ++i) {
      out.tokens.push_back((length * 31 + i * 53 + 7) % vocab);
      out.positions.push_back(i);
    }
  }
  return out;
}

std::vector<float> hidden_of(Model& model, const Rows& rows) {
  std::vector<std::uint32_t> all(rows.tokens.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto hidden = model.forward({rows.tokens, rows.positions, {}, all});
  EXPECT_TRUE(hidden) << hidden.error().what;
  if (!hidden) return {};
  EXPECT_EQ(hidden->vocab, model.output_width());
  return {hidden->data, hidden->data + hidden->n_rows * hidden->vocab};
}

TEST(Encoder, ARowsBitsAreItsOwnInAnyBatchOnAnyThreads_MOD61) {
  for (const char* const name : {"bert", "modernbert"}) {
    const auto files = formats::ModelFiles::open(kModels / name);
    ASSERT_TRUE(files) << files.error().what;
    std::vector<float> first;
    for (const int n_threads : {1, 3}) {
      const auto device = *backend::cpu::make_cpu_device({.n_threads = n_threads});
      const auto model = Model::load(*files, *device, {.max_step_tokens = 512});
      ASSERT_TRUE(model) << model.error().what;
      const std::uint32_t vocab = (*model)->vocab_size();

      const auto together = hidden_of(**model, rows_of({5, 200, 1, 37}, vocab));

      std::vector<float> apart;
      for (const std::uint32_t length : {5u, 200u, 1u, 37u}) {
        const auto alone = hidden_of(**model, rows_of({length}, vocab));
        apart.insert(apart.end(), alone.begin(), alone.end());
      }
      ASSERT_EQ(together.size(), apart.size());
      EXPECT_EQ(std::memcmp(together.data(), apart.data(), apart.size() * sizeof(float)), 0);
      if (first.empty()) first = together;
      EXPECT_EQ(std::memcmp(together.data(), first.data(), first.size() * sizeof(float)), 0);
    }
  }
}

TEST(Encoder, SaysWhatItIsAndTakesItsLongestInputInOneStep_SCH12) {
  const auto files = formats::ModelFiles::open(kModels / "bert");
  const auto device = oracle();
  const auto model = Model::load(*files, *device, {.max_step_tokens = 16});
  ASSERT_TRUE(model) << model.error().what;

  EXPECT_TRUE((*model)->kv_list().empty());
  EXPECT_EQ((*model)->output(), OutputKind::hidden);
  EXPECT_EQ((*model)->output_width(), 64u);
  EXPECT_TRUE((*model)->takes_whole_rows());
  EXPECT_EQ((*model)->max_step_tokens(), 256u);
  EXPECT_EQ(hidden_of(**model, rows_of({256}, 288)).size(), 256u * 64);
  EXPECT_EQ((*model)->cost(10, 0).kv_bytes, 0u);
}

TEST(Encoder, RefusesARowThatDoesNotStartAtPosition0) {
  const auto files = formats::ModelFiles::open(kModels / "bert");
  const auto device = oracle();
  const auto model = Model::load(*files, *device, {.max_step_tokens = 16});
  ASSERT_TRUE(model) << model.error().what;
  const std::vector<TokenId> tokens{1, 2, 3};

  for (const std::vector<std::uint32_t>& positions :
       {std::vector<std::uint32_t>{1, 2, 3}, {0, 1, 3}, {0, 0, 2}})
    EXPECT_FALSE((*model)->forward({tokens, positions, {}, {}}));
  EXPECT_TRUE((*model)->forward({tokens, std::vector<std::uint32_t>{0, 0, 1}, {}, {}}));
}

TEST(Encoder, NamesAMissingTensorAndALeftOverOne_MOD5) {
  const auto tensors = tensors_of(kModels / "bert" / "model.safetensors");
  const std::string config = *read_file(kModels / "bert" / "config.json", 1 << 20);
  const auto error_with = [&](const std::vector<TestTensor>& changed) {
    const ModelFolder folder(config, changed);
    const auto files = formats::ModelFiles::open(folder.path());
    const auto device = oracle();
    const auto model = Model::load(*files, *device, {.max_step_tokens = 16});
    return model ? std::string("no error") : model.error().what;
  };
  auto missing = tensors, more = tensors;
  std::erase_if(missing, [](const TestTensor& t) {
    return t.name == "encoder.layer.1.attention.self.key.bias";
  });
  more.push_back(tensors.front());
  more.back().name = "encoder.layer.3.output.dense.bias";

  EXPECT_EQ(error_with(tensors), "no error");
  EXPECT_NE(error_with(missing).find("encoder.layer.1.attention.self.key.bias"), std::string::npos);
  EXPECT_NE(error_with(more).find("encoder.layer.3.output.dense.bias"), std::string::npos);
}

TEST(Encoder, IntegersBesideTheWeightsDoNotCostTheirPrecision_MOD6) {
  const TestTensor weight{"a.weight", "F32", {1, 2}, std::string(8, '\0')};
  const TestTensor ids{"embeddings.position_ids", "I64", {1, 2}, std::string(16, '\0')};
  const TestTensor half{"b.weight", "F16", {1, 2}, std::string(4, '\0')};
  const ModelFolder with_ids("{}", {weight, ids}), with_half("{}", {weight, half});

  EXPECT_TRUE(stores_only_f32(*formats::ModelFiles::open(with_ids.path())));
  EXPECT_FALSE(stores_only_f32(*formats::ModelFiles::open(with_half.path())));
}

// config.json of the first dialect: types by a period, two thetas.
TEST(Encoder, ReadsTheOlderModernBertConfig_MOD38) {
  const ModelFolder folder(
      R"({"architectures": ["ModernBertModel"], "model_type": "modernbert", "hidden_size": 64, "vocab_size": 100,
    "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 512,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "local_attention": 128})");
  const auto files = formats::ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;
  const auto config = describe_model(*files, 0);
  ASSERT_TRUE(config) << config.error().what;

  std::vector<std::uint32_t> windows, ropes;
  for (const LayerSpec& layer : config->layers) {
    windows.push_back(layer.attention.window);
    ropes.push_back(*layer.attention.rope);
  }
  EXPECT_EQ(windows, (std::vector<std::uint32_t>{0, 65, 65, 0}));  // |q - j| <= 64
  EXPECT_EQ(ropes, (std::vector<std::uint32_t>{0, 1, 1, 0}));
  EXPECT_LT(config->ropes[0].inverse_frequencies[1], config->ropes[1].inverse_frequencies[1]);
}

TEST(Encoder, AFolderThatSaysHowItsRowsArePooledHasNoHead_MOD61) {
  const ModelFolder folder(
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "vocab_size": 100,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "max_position_embeddings": 512, "tie_word_embeddings": true})");
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  std::ofstream(folder.path() / "1_Pooling" / "config.json")
      << R"({"word_embedding_dimension": 64, "pooling_mode_lasttoken": true})";
  const auto files = formats::ModelFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().what;
  const auto config = describe_model(*files, 0);
  ASSERT_TRUE(config) << config.error().what;

  EXPECT_FALSE(config->has_head);
  EXPECT_EQ(kv_list_of(*config).size(), 2u);
}

}  // namespace
}  // namespace kvasir::model
