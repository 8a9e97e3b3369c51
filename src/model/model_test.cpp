// Loading and running a model: what is refused (MOD-5), what is counted, and that a row's bits are
// its own (DESIGN §5).
#include "model/model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "backend/ref/ref_device.h"
#include "base/file.h"
#include "model/detail/contiguous_kv.h"
#include "model/families.h"
#include "model/testing/model_folder.h"
#include "ops/pick.h"

namespace kvasir::model {
namespace {

const std::filesystem::path kModels = std::filesystem::path(KVASIR_TEST_DATA) / "models";

// One of those in the repository, else one of the shared folder.
std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::exists(kModels / name)
             ? kModels / name
             : std::filesystem::path(KVASIR_GOLDEN_MODELS) / name;
}

struct Loaded {
  std::unique_ptr<ops::Device> device =
      backend::ref::make_ref_device(backend::ref::RefMode::oracle);
  std::unique_ptr<Model> model;
};

Loaded load(const std::string& name,
            LoadOptions options = {.max_context = 256, .max_step_tokens = 64},
            std::unique_ptr<ops::Device> device = nullptr) {
  Loaded out;
  if (device) out.device = std::move(device);
  const auto files = formats::ModelFiles::open(folder_of(name));
  EXPECT_TRUE(files) << files.error().what;
  auto model = Model::load(*files, *out.device, std::move(options));
  EXPECT_TRUE(model) << model.error().what;
  out.model = *std::move(model);
  return out;
}

std::string load_error(const std::filesystem::path& path) {
  const auto files = formats::ModelFiles::open(path);
  if (!files) return files.error().what;
  const auto device = backend::ref::make_ref_device(backend::ref::RefMode::oracle);
  const auto model = Model::load(*files, *device, {.max_context = 64, .max_step_tokens = 8});
  return model ? "no error" : model.error().what;
}

std::string llama_config(std::string_view change_from = "", std::string_view change_to = "") {
  std::string text = *read_file(kModels / "llama" / "config.json", 1 << 20);
  if (!change_from.empty()) text.replace(text.find(change_from), change_from.size(), change_to);
  return text;
}

std::vector<TestTensor> llama_tensors() {
  return tensors_of(kModels / "llama" / "model.safetensors");
}

TestTensor& named(std::vector<TestTensor>& tensors, std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TestTensor& t) { return t.name == name; });
}

TEST(Loading, NamesTheFirstMissingTensor_MOD5) {
  auto tensors = llama_tensors();
  std::erase_if(tensors, [](const TestTensor& t) {
    return t.name == "model.layers.1.self_attn.k_proj.weight";
  });
  const ModelFolder folder(llama_config(), tensors);
  EXPECT_NE(load_error(folder.path()).find("'model.layers.1.self_attn.k_proj.weight' is missing"),
            std::string::npos)
      << load_error(folder.path());
}

TEST(Loading, NamesTheFirstExtraTensor_MOD5) {
  auto tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.q_norm.weight", "F32", {4}, std::string(16, '\0')});
  const ModelFolder folder(llama_config(), tensors);
  EXPECT_NE(load_error(folder.path())
                .find("'model.layers.0.self_attn.q_norm.weight' is not part of this model"),
            std::string::npos);
}

TEST(Loading, NamesAMisshapenTensor_MOD5) {
  auto tensors = llama_tensors();
  named(tensors, "model.layers.2.mlp.up_proj.weight").shape = {64, 96};
  const ModelFolder folder(llama_config(), tensors);
  EXPECT_NE(
      load_error(folder.path()).find("'model.layers.2.mlp.up_proj.weight' has shape [64, 96]"),
      std::string::npos);
}

TEST(Loading, SkipsWhatAModelMayCarryUnread_MOD5) {
  auto tensors = llama_tensors();
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}, std::string(32, '\0')});
  tensors.push_back({"mtp.fc.weight", "F32", {2, 2}, std::string(16, '\0')});
  tensors.push_back({"model.layers.3.eh_proj.weight", "F32", {2, 2}, std::string(16, '\0')});
  const ModelFolder folder(
      llama_config("\"model_type\"", "\"num_nextn_predict_layers\": 1, \"model_type\""), tensors);
  EXPECT_EQ(load_error(folder.path()), "no error");
  const ModelFolder without(llama_config(), tensors);
  EXPECT_NE(load_error(without.path()).find("eh_proj"), std::string::npos);
}

TEST(Loading, TiedEmbeddingsNeedNoHeadAndIgnoreACopy) {
  auto tensors = llama_tensors();
  const ModelFolder with_copy(
      llama_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"), tensors);
  EXPECT_EQ(load_error(with_copy.path()), "no error");
  std::erase_if(tensors, [](const TestTensor& t) { return t.name == "lm_head.weight"; });
  const ModelFolder tied(
      llama_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"), tensors);
  EXPECT_EQ(load_error(tied.path()), "no error");
  const ModelFolder untied(llama_config(), tensors);
  EXPECT_NE(load_error(untied.path()).find("'lm_head.weight' is missing"), std::string::npos);
}

TEST(Loading, ReportsProgressUpToTheWhole) {
  std::uint64_t last = 0, total = 0;
  const auto sink = [&](const Progress& p) {
    EXPECT_EQ(p.stage, "repacking weights");
    EXPECT_GE(p.done, last);
    last = p.done;
    total = p.total;
  };
  const Loaded llama = load("llama", {.max_context = 64, .max_step_tokens = 8, .progress = sink});
  EXPECT_GT(total, 0u);
  EXPECT_GE(last * 100, total * 99);  // all but the norms
}

TEST(Loading, KeepsF32WhenNothingElseIsStored_MOD6) {
  auto tensors = llama_tensors();
  for (TestTensor& t : tensors) {
    std::string wide;
    for (std::size_t i = 0; i < t.bytes.size(); i += 2) wide.append(2, '\0').append(t.bytes, i, 2);
    t.bytes = std::move(wide);
    t.dtype = "F32";
  }
  const ModelFolder folder(llama_config(), tensors);
  const auto files = formats::ModelFiles::open(folder.path());
  const auto device = backend::ref::make_ref_device(backend::ref::RefMode::oracle);
  EXPECT_TRUE(
      (*Model::load(*files, *device, {.max_context = 64, .max_step_tokens = 8}))->exact_f32());
  EXPECT_FALSE(load("llama").model->exact_f32());
}

TEST(Loading, CountsScratchBeforehand) {
  const Loaded moe = load("qwen3-moe", {.max_context = 64, .max_step_tokens = 24, .max_wanted = 3});
  EXPECT_EQ(moe.model->scratch_bytes(), scratch_bytes(moe.model->config(), 24, 3));
  EXPECT_EQ(moe.model->max_wanted(), 3u);
  EXPECT_EQ(moe.model->rope_bytes(), 2u * 64 * 8 * 4);
}

TEST(Forward, RefusesABatchBeyondItsLimits) {
  const Loaded llama = load("llama", {.max_context = 16, .max_step_tokens = 4, .max_wanted = 1});
  auto kv =
      *ContiguousKv::make(*llama.device, llama.model->kv_list(), {.n_rows = 1, .max_tokens = 64});
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5}, unknown{288};
  const std::vector<std::uint32_t> positions{0, 1, 2, 3, 4}, late{16}, wanted{0, 1}, beyond{4};
  const std::uint32_t four = 4;
  const KvViews views = kv.begin({&four, 1});
  const KvViews two{views.attention.first(2), views.latent.first(2), views.recurrent.first(2)};
  const auto first = [](const auto& v, std::size_t n) { return std::span(v).first(n); };

  EXPECT_FALSE(llama.model->forward({tokens, positions, views, {}}));
  EXPECT_FALSE(llama.model->forward({first(tokens, 4), first(positions, 4), views, wanted}));
  EXPECT_FALSE(llama.model->forward({first(tokens, 4), first(positions, 4), views, beyond}));
  EXPECT_FALSE(llama.model->forward({first(tokens, 4), first(positions, 3), views, {}}));
  EXPECT_FALSE(llama.model->forward({first(tokens, 4), first(positions, 4), two, {}}));
  EXPECT_FALSE(llama.model->forward({unknown, first(positions, 1), views, {}}));
  EXPECT_FALSE(llama.model->forward({first(tokens, 1), late, views, {}}));
  EXPECT_TRUE(
      llama.model->forward({first(tokens, 4), first(positions, 4), views, first(wanted, 1)}));
}

// Steps of three rows on a model: the host's way, and by picks that the next step feeds unread.
struct PickedRows {
  explicit PickedRows(Loaded& m)
      : model(m),
        kv(*ContiguousKv::make(*m.device, m.model->kv_list(), {.n_rows = 3, .max_tokens = 64})) {}
  static std::vector<PickRow> picks_at(std::uint64_t position) {
    return {{.seed = 1, .position = position, .scale = 1.25f, .kind = PickKind::drawn},
            {.seed = 2, .position = position, .scale = 0, .kind = PickKind::highest},
            {.seed = 3, .position = position, .scale = 0.5f, .kind = PickKind::drawn}};
  }
  Status launch(const std::vector<TokenId>& tokens, std::span<const PickRow> picks) {
    const std::vector<std::uint32_t> n_new(3, 1), positions(3, kv.length(0)), wanted{0, 1, 2};
    KVASIR_TRY_DO(model.model->launch({tokens, positions, kv.begin(n_new), wanted, picks}));
    kv.commit();
    return {};
  }
  Loaded& model;
  ContiguousKv kv;
};

// EXE-10, SAMP-2, SAMP-12: what is picked is what the host would have chosen of the scores, and a
// step that feeds it before anyone has read it is the step that feeds the token.
TEST(Forward, FeedsTokensThatNobodyHasReadYet) {
  for (const bool is_cpu : {false, true}) {
    Loaded m = load("llama", {.max_context = 64, .max_step_tokens = 8},
                    is_cpu ? *backend::cpu::make_cpu_device({.n_threads = 2}) : nullptr);
    std::vector<std::vector<TokenId>> expected;
    PickedRows host(m);
    std::vector<TokenId> tokens{5, 6, 7};
    for (std::uint64_t step = 0; step < 10; ++step) {
      const auto picks = PickedRows::picks_at(step);
      ASSERT_TRUE(host.launch(tokens, {}));
      const auto out = m.model->collect();
      ASSERT_TRUE(out);
      EXPECT_TRUE(out->picked.empty());
      for (std::size_t r = 0; r < 3; ++r) tokens[r] = ops::pick_token(out->logits.row(r), picks[r]);
      expected.push_back(tokens);
    }

    PickedRows ahead(m);
    ASSERT_TRUE(ahead.launch({5, 6, 7}, PickedRows::picks_at(0)));
    for (std::uint64_t step = 0; step < 10; ++step) {
      if (step < 9) {
        ASSERT_TRUE(ahead.launch({picked_from(0), picked_from(1), picked_from(2)},
                                 PickedRows::picks_at(step + 1)));
      }
      const auto out = m.model->collect();
      ASSERT_TRUE(out);
      EXPECT_EQ(std::vector<TokenId>(out->picked.begin(), out->picked.end()), expected[step]);
    }

    // A row whose scores are wanted leaves no token, and the others have theirs all the same.
    PickedRows mixed(m);
    auto picks = PickedRows::picks_at(0);
    picks[1] = {};
    ASSERT_TRUE(mixed.launch({5, 6, 7}, picks));
    const auto out = m.model->collect();
    ASSERT_TRUE(out);
    EXPECT_EQ(std::vector<TokenId>(out->picked.begin(), out->picked.end()),
              (std::vector<TokenId>{expected[0][0], kNoToken, expected[0][2]}));
    EXPECT_EQ(ops::find_peak(out->logits.row(1)).token, expected[0][1]);
    EXPECT_FALSE(mixed.launch({picked_from(3), 1, 1}, {})) << "that row picked nothing";
    EXPECT_FALSE(mixed.launch({1, 1, 1}, std::span(picks).first(2)));
  }
}

// Feeds rows of one model; keeps the logits of every token.
class Rows {
 public:
  Rows(Loaded& loaded, std::uint32_t n_rows, std::uint32_t block_tokens, DType kv_type = DType::f32)
      : loaded_(loaded),
        logits(n_rows),
        kv_(*ContiguousKv::make(
            *loaded.device,
            loaded.model->kv_list(),
            {.n_rows = n_rows, .max_tokens = 128, .block_tokens = block_tokens, .type = kv_type})) {
  }

  void feed(const std::vector<std::vector<TokenId>>& rows) {
    std::vector<TokenId> tokens;
    std::vector<std::uint32_t> positions, n_new;
    for (std::uint32_t r = 0; r < rows.size(); ++r) {
      n_new.push_back(static_cast<std::uint32_t>(rows[r].size()));
      for (std::uint32_t i = 0; i < rows[r].size(); ++i) positions.push_back(kv_.length(r) + i);
      tokens.insert(tokens.end(), rows[r].begin(), rows[r].end());
    }
    std::vector<std::uint32_t> wanted(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0u);
    const auto out = loaded_.model->forward({tokens, positions, kv_.begin(n_new), wanted});
    ASSERT_TRUE(out) << out.error().what;
    kv_.commit();
    std::size_t at = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t i = 0; i < rows[r].size(); ++i, ++at)
        logits[r].insert(logits[r].end(), out->row(at).begin(), out->row(at).end());
    }
  }

 private:
  Loaded& loaded_;

 public:
  std::vector<std::vector<float>> logits;  // [row][tokens · vocab]

 private:
  ContiguousKv kv_;
};

std::vector<TokenId> some_tokens(std::uint32_t n, std::uint32_t seed) {
  std::vector<TokenId> out(n);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = (i * 37 + seed * 101 + i * i) % 288;
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class SameBits : public testing::TestWithParam<const char*> {};

void expect_same_bits(Loaded loaded, DType kv_type) {
  const auto a = some_tokens(40, 1), b = some_tokens(9, 2);
  const auto part = [](const std::vector<TokenId>& v, std::size_t begin, std::size_t end) {
    return std::vector<TokenId>(v.begin() + std::ptrdiff_t(begin), v.begin() + std::ptrdiff_t(end));
  };
  Rows whole(loaded, 1, 64, kv_type), b_alone(loaded, 1, 64, kv_type), mixed(loaded, 2, 8, kv_type);

  whole.feed({a});
  b_alone.feed({b});
  mixed.feed({part(a, 0, 7), part(b, 0, 8)});
  mixed.feed({part(a, 7, 8), {}});
  mixed.feed({part(a, 8, 39), part(b, 8, 9)});
  mixed.feed({part(a, 39, 40), {}});

  EXPECT_TRUE(same_bits(whole.logits[0], mixed.logits[0]));
  EXPECT_TRUE(same_bits(b_alone.logits[0], mixed.logits[1]));
}

TEST_P(SameBits, ChunkedEqualsWholeAndBatchedEqualsAlone) {
  if (!std::filesystem::exists(folder_of(GetParam()))) GTEST_SKIP() << "no " << GetParam();
  const LoadOptions options{.max_context = 256, .max_step_tokens = 64};
  expect_same_bits(load(GetParam(), options), DType::f32);
  expect_same_bits(load(GetParam(), options, *backend::cpu::make_cpu_device({.n_threads = 1})),
                   DType::bf16);
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    SameBits,
    testing::Values("llama", "qwen3-moe", "deepseek-v3", "deepseek-v3-yarn", "glm-moe-dsa"),
    [](const auto& test) {
      std::string name = test.param;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

// MLX files stack the experts of a layer in one tensor; the bits are those of the model stored
// apart.
TEST(Loading, TakesExpertsStackedOrApart_MOD14_MOD18) {
  auto tensors = tensors_of(kModels / "qwen3-moe" / "model.safetensors");
  for (const std::string layer : {"0", "1", "2"}) {
    for (const std::string part : {"gate_proj", "up_proj", "down_proj"}) {
      TestTensor stack{
          "model.layers." + layer + ".mlp.switch_mlp." + part + ".weight", "BF16", {8}, ""};
      for (int e = 0; e < 8; ++e) {
        const TestTensor& one = named(tensors, "model.layers." + layer + ".mlp.experts." +
                                                   std::to_string(e) + "." + part + ".weight");
        if (e == 0) stack.shape.insert(stack.shape.end(), one.shape.begin(), one.shape.end());
        stack.bytes += one.bytes;
      }
      tensors.push_back(stack);
    }
  }
  std::erase_if(tensors,
                [](const TestTensor& t) { return t.name.find(".experts.") != std::string::npos; });
  const ModelFolder folder(*read_file(kModels / "qwen3-moe" / "config.json", 1 << 20), tensors);
  Loaded stacked, apart = load("qwen3-moe");
  const auto files = formats::ModelFiles::open(folder.path());
  auto model = Model::load(*files, *stacked.device, {.max_context = 256, .max_step_tokens = 64});
  ASSERT_TRUE(model) << model.error().what;
  stacked.model = *std::move(model);

  Rows a(stacked, 1, 64), b(apart, 1, 64);
  a.feed({some_tokens(20, 3)});
  b.feed({some_tokens(20, 3)});

  EXPECT_TRUE(same_bits(a.logits[0], b.logits[0]));
}

TEST(Loading, SaysWhenAFamilyHasNoReferenceCheckpoint_MOD5) {
  const ModelFolder folder(llama_config("LlamaForCausalLM", "IQuestCoderForCausalLM"),
                           llama_tensors());
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_error(folder.path()), "no error");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("untested family: iquestcoder"),
            std::string::npos);
}

TEST(Cost, CountsTheBytesAndOperationsOfAStep) {
  const Loaded llama = load("llama");
  const StepCost one = llama.model->cost(1, 99);
  // A layer: q 64·64, k and v 32·64 each, o 64·64, three of 96·64; three layers, then the head
  // 288·64.
  EXPECT_EQ(one.linear_flops, 2u * (3 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64) + 288 * 64));
  EXPECT_EQ(one.attention_flops, 3u * 4 * 64 * 100);
  EXPECT_EQ(one.kv_bytes, 3u * 2 * (100 + 1) * 32 * 2);
  EXPECT_LT(one.weight_bytes, llama.model->weight_bytes());
  EXPECT_EQ(llama.model->cost(2, 0).attention_flops, 3u * 4 * 64 * 3);

  const Loaded moe = load("qwen3-moe");
  EXPECT_LT(moe.model->cost(1, 0).weight_bytes,
            moe.model->cost(4, 0).weight_bytes);  // 2 and at most 8 of 8 experts
}

}  // namespace
}  // namespace kvasir::model
