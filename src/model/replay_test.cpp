// Stepping recurrent layers back (KV-39, KV-54): after a replay, state and later logits are those
// of a run that fed only the kept tokens, bit for bit, whatever the row, its siblings and the
// backend.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <tuple>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/ref/ref_device.h"
#include "model/testing/checkpoint.h"

namespace kvasir::model {
namespace {

enum class Kind { oracle, mirror, cpu };

std::unique_ptr<ops::Device> make_device(Kind kind) {
  if (kind == Kind::cpu) return *backend::cpu::make_cpu_device({.n_threads = 2});
  return backend::ref::make_ref_device(kind == Kind::oracle ? backend::ref::RefMode::oracle
                                                            : backend::ref::RefMode::mirror);
}

constexpr std::uint32_t kRows = 4, kWindow = 5, kMaxTentative = 3 * kWindow;
constexpr std::uint32_t kHistory[kRows] = {3, 7, 0, 12};
constexpr std::uint32_t kNew[kRows] = {3, kWindow, kWindow,
                                       kWindow};  // all but the first are tentative

std::vector<TokenId> tokens_of(std::uint32_t row) { return some_tokens(40, row); }

struct Fixture {
  Fixture(std::string_view name, Kind kind) : device(make_device(kind)) {
    const auto files = *formats::ModelFiles::open(golden_folder(name));
    auto loaded = Model::load(
        files, *device,
        {.max_context = 64, .max_step_tokens = 64, .max_tentative_tokens = kMaxTentative});
    EXPECT_TRUE(loaded) << loaded.error().what;
    model = *std::move(loaded);
  }
  ContiguousKv make_kv() {
    return *ContiguousKv::make(
        *device, model->kv_list(),
        {.n_rows = kRows, .max_tokens = 64, .block_tokens = 8, .type = DType::bf16});
  }
  std::unique_ptr<ops::Device> device;
  std::unique_ptr<Model> model;
};

// Tokens and positions of a step that feeds n_new[row] tokens of each row from its length on.
struct Step {
  Step(const ContiguousKv& kv, std::span<const std::uint32_t> n_new) {
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const std::vector<TokenId> all = tokens_of(row);
      for (std::uint32_t i = 0; i < n_new[row]; ++i) {
        positions.push_back(kv.length(row) + i);
        tokens.push_back(all[positions.back()]);
      }
    }
    wanted.resize(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0u);
  }
  StepBatch batch(const KvViews& kv) const { return {tokens, positions, kv, wanted}; }
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> positions, wanted;
};

std::vector<float> feed(Fixture& f, ContiguousKv& kv, const std::vector<std::uint32_t>& n_new) {
  const Step step(kv, n_new);
  const auto logits = f.model->forward(step.batch(kv.begin(n_new)));
  EXPECT_TRUE(logits) << logits.error().what;
  kv.commit();
  return {logits->data, logits->data + logits->n_rows * logits->vocab};
}

// Views that leave the state of before alone, as a store's do: all rows but the first are
// tentative.
class TentativeViews {
 public:
  explicit TentativeViews(const KvViews& views) : views_(views) {
    recurrent_.assign(views.recurrent.begin(), views.recurrent.end());
    rows_.resize(recurrent_.size());
    for (std::size_t layer = 0; layer < recurrent_.size(); ++layer) {
      RecurrentLayerView& view = recurrent_[layer];
      rows_[layer].assign(view.rows.begin(), view.rows.end());
      for (std::size_t row = 1; row < rows_[layer].size(); ++row) {
        RecurrentRowView& r = rows_[layer][row];
        r.is_tentative = true;
        if (r.conv_from) r.conv_from = keep(r.conv_to, view.conv_bytes());
        if (r.delta_from)
          r.delta_from = reinterpret_cast<const float*>(
              keep(reinterpret_cast<std::byte*>(r.delta_to), view.delta_bytes()));
      }
      view.rows = rows_[layer];
    }
  }
  KvViews views() const { return {views_.attention, views_.latent, recurrent_}; }
  // What a store does by not swapping.
  void restore(std::size_t row) const {
    for (std::size_t layer = 0; layer < recurrent_.size(); ++layer) {
      if (rows_[layer].empty() || !rows_[layer][row].conv_from) continue;
      const RecurrentRowView& r = rows_[layer][row];
      std::memcpy(r.conv_to, r.conv_from, recurrent_[layer].conv_bytes());
      if (r.delta_from) std::memcpy(r.delta_to, r.delta_from, recurrent_[layer].delta_bytes());
    }
  }

 private:
  const std::byte* keep(const std::byte* state, std::size_t size) {
    return saved_.emplace_back(std::make_unique<std::vector<std::byte>>(state, state + size))
        ->data();
  }
  KvViews views_;
  std::vector<RecurrentLayerView> recurrent_;
  std::vector<std::vector<RecurrentRowView>> rows_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> saved_;
};

std::vector<std::byte> state_of(ContiguousKv& kv, std::uint32_t row) {
  std::vector<std::byte> out;
  const std::vector<std::uint32_t> one(kRows, 1);
  for (const RecurrentLayerView& view : kv.begin(one).recurrent) {
    if (view.rows.empty()) continue;
    const std::byte* const conv = view.rows[row].conv_to;
    const auto* const delta = reinterpret_cast<const std::byte*>(view.rows[row].delta_to);
    out.insert(out.end(), conv, conv + view.conv_bytes());
    out.insert(out.end(), delta, delta + view.delta_bytes());
  }
  return out;
}

class Replay : public testing::TestWithParam<std::tuple<const char*, Kind>> {};

TEST_P(Replay, EqualsARunThatFedOnlyTheKeptTokens_KV54) {
  const auto& [name, kind] = GetParam();
  SKIP_WITHOUT(name);
  Fixture f(name, kind);
  for (std::uint32_t k = 0; k <= kWindow; ++k) {
    const std::vector<std::uint32_t> keep = {kNew[0], k, (k + 2) % (kWindow + 1),
                                             (2 * k + 1) % (kWindow + 1)};
    ContiguousKv kv = f.make_kv();
    feed(f, kv, {kHistory, kHistory + kRows});
    const std::vector<std::uint32_t> n_new(kNew, kNew + kRows);
    const Step step(kv, n_new);
    const TentativeViews tentative(kv.begin(n_new));
    ASSERT_TRUE(f.model->forward(step.batch(tentative.views())));

    f.model->replay(step.batch(tentative.views()), keep);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      if (keep[row] == 0) tentative.restore(row);
    }
    kv.commit(keep);

    std::vector<std::vector<std::byte>> states;
    for (std::uint32_t row = 0; row < kRows; ++row) states.push_back(state_of(kv, row));
    const std::vector<float> next = feed(f, kv, std::vector<std::uint32_t>(kRows, 1));
    const std::size_t vocab = next.size() / kRows;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      ContiguousKv alone = f.make_kv();
      std::vector<std::uint32_t> mine(kRows, 0);
      for (const std::uint32_t n : {kHistory[row], keep[row]}) {
        mine[row] = n;
        if (n > 0) feed(f, alone, mine);
      }
      if (alone.length(row) > 0) {
        EXPECT_EQ(states[row], state_of(alone, row)) << "keep " << keep[row] << " of row " << row;
      }
      mine[row] = 1;
      const std::vector<float> want = feed(f, alone, mine);
      EXPECT_EQ(std::memcmp(&next[row * vocab], want.data(), vocab * sizeof(float)), 0)
          << "after keep " << keep[row] << " of row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Replay,
                         testing::Combine(testing::Values("qwen3-next", "qwen3_5", "lfm2"),
                                          testing::Values(Kind::oracle, Kind::mirror, Kind::cpu)));

TEST(TentativeTokens, BeyondWhatTheModelKeepsAreRefused_KV39) {
  SKIP_WITHOUT("qwen3_5");
  Fixture f("qwen3_5", Kind::oracle);
  EXPECT_EQ(f.model->max_tentative_tokens(), kMaxTentative);
  ContiguousKv kv = f.make_kv();
  const std::vector<std::uint32_t> n_new = {1, kWindow, kWindow, kWindow + 1};
  const Step step(kv, n_new);
  const TentativeViews tentative(kv.begin(n_new));

  const auto logits = f.model->forward(step.batch(tentative.views()));

  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code, Errc::capacity);
  EXPECT_EQ(logits.error().what, "16 tentative tokens in a step, at most 15");
}

TEST(TentativeTokens, TakeMemoryOnlyWhereLayersAreRecurrent) {
  SKIP_WITHOUT("qwen3_5");
  SKIP_WITHOUT("llama");
  const auto device = make_device(Kind::oracle);
  const auto scratch_of = [&](const char* name, std::uint32_t n) {
    const auto files = *formats::ModelFiles::open(golden_folder(name));
    const auto model =
        *Model::load(files, *device, {.max_step_tokens = 32, .max_tentative_tokens = n});
    EXPECT_EQ(model->scratch_bytes(), scratch_bytes(model->config(), 32, 32, n));
    EXPECT_EQ(model->max_tentative_tokens(), std::string_view(name) == "llama" ? 32u : n);
    return model->scratch_bytes();
  };
  EXPECT_EQ(scratch_of("llama", 16), scratch_of("llama", 0));
  // Three linear layers: inputs of the convolution, beta and decay.
  EXPECT_EQ(scratch_of("qwen3_5", 16), scratch_of("qwen3_5", 0) + 3u * 16 * (128 + 2 * 4) * 4);
}

}  // namespace
}  // namespace kvasir::model
