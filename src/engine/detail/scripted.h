// What the engine's tests run against: an executor whose "model" is a hash of the row's tokens,
// read back through the KV views, so that any mistake with blocks, positions or windows shows in
// the output; a sink that plays a script; and the naive model: the same hash over a plain vector.
// Tests only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "contract/executor.h"
#include "contract/sink.h"
#include "engine/engine.h"
#include "kv/testing.h"
#include "sampling/sampling_session.h"

namespace kvasir::engine::scripted {

inline constexpr std::uint32_t kVocab = 64;
inline constexpr TokenId kEos = 0;
inline constexpr std::uint32_t kWindow = 12;

inline std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h = (h ^ (x + 1)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

inline std::vector<float> logits_of(std::uint64_t full, std::uint64_t windowed) {
  std::vector<float> out(kVocab);
  for (std::uint32_t v = 0; v < kVocab; ++v)
    out[v] = static_cast<float>(mix(mix(full, windowed), v) >> 40) * 0x1p-22f - 2.0f;
  return out;
}

// Logits after a history, without any KV.
inline std::vector<float> naive_logits(std::span<const TokenId> history) {
  std::uint64_t full = 1, windowed = 1;
  for (std::size_t i = 0; i < history.size(); ++i) {
    full = mix(full, history[i]);
    if (history.size() - i <= kWindow) windowed = mix(windowed, history[i]);
  }
  return logits_of(full, windowed);
}

// A recurrent layer: its tail is the last token (two bf16 of raw bits), its state the hash of all.
inline constexpr KvLayerSpec kStateLayer{
    .recurrent = {
        .conv_kernel = 2, .n_channels = 2, .n_value_heads = 1, .value_dim = 1, .key_dim = 2}};

// A hidden row of an encoder: of all the row's tokens and its own place.
inline constexpr std::uint32_t kHidden = 4;
inline std::vector<float> encoder_row(std::span<const TokenId> row, std::size_t position) {
  std::uint64_t all = 1;
  for (const TokenId token : row) all = mix(all, token);
  std::vector<float> out = logits_of(all, position);
  out.resize(kHidden);
  return out;
}

struct FakeExecutor final : Executor {
  KvList list{{1, 8, 0}, {1, 8, kWindow}, {1, 8, 0}};
  std::uint32_t max_tentative = 4096;
  std::uint32_t n_positions = 4096;
  std::uint32_t n_calls = 0;
  std::optional<std::uint32_t> fails_at;  // index of the call
  std::optional<TokenId> nan_token;       // rows whose first token it is get NaN
  std::vector<std::string>* trace = nullptr;
  std::vector<std::size_t> step_sizes;
  std::vector<std::size_t> wanted_sizes;
  bool picks = true;        // tokens of rows that let it
  bool is_behind = false;   // pretends that work goes on after launch()
  bool is_trunk = false;    // output rows are the first columns of the logits
  bool is_encoder = false;  // no KV, whole rows

  OutputKind output() const noexcept override {
    return is_trunk || is_encoder ? OutputKind::hidden : OutputKind::logits;
  }
  std::uint32_t output_width() const noexcept override {
    return output() == OutputKind::hidden ? kHidden : kVocab;
  }
  bool takes_whole_rows() const noexcept override { return is_encoder; }
  const KvList& kv_list() const noexcept override { return list; }
  std::uint32_t vocab_size() const noexcept override { return kVocab; }
  std::uint32_t max_positions() const noexcept override { return n_positions; }
  std::uint32_t max_step_tokens() const noexcept override { return 4096; }
  std::uint32_t max_tentative_tokens() const noexcept override { return max_tentative; }
  std::uint32_t most_wanted = 4096;
  std::uint32_t max_wanted() const noexcept override { return most_wanted; }
  void replay(const StepBatch& batch, std::span<const std::uint32_t> keep) noexcept override {
    for (const RecurrentLayerView& layer : batch.kv.recurrent) {
      for (std::size_t i = 0; i < layer.rows.size(); ++i) {
        const RecurrentRowView& row = layer.rows[i];
        if (keep[i] == 0 || keep[i] == row.n_new) continue;
        KVASIR_CHECK(row.is_tentative && row.n_new <= max_tentative);
        step_state(row, batch, keep[i]);
        ++n_replays;
      }
    }
  }
  std::uint32_t n_replays = 0;

  bool runs_behind() const noexcept override { return is_behind; }
  bool picks_tokens() const noexcept override { return picks && output() == OutputKind::logits; }

  Status launch(const StepBatch& given) override {
    KVASIR_CHECK(n_launched == 0 || (is_behind && n_launched == 1 && !launched[0].wants_scores))
        << "two steps on their way";
    if (trace) trace->push_back("forward " + std::to_string(given.tokens.size()));
    step_sizes.push_back(given.tokens.size());
    wanted_sizes.push_back(given.wanted.size());
    KVASIR_CHECK(given.wanted.size() <= most_wanted) << "more rows than the executor has room for";
    n_ahead += static_cast<std::uint32_t>(n_launched);
    StepBatch batch = given;
    const std::vector<TokenId> tokens = tokens_of(given);
    batch.tokens = tokens;
    for (const KvLayerView& layer : batch.kv.attention) write(layer, batch);
    for (const RecurrentLayerView& layer : batch.kv.recurrent)
      for (const RecurrentRowView& row : layer.rows) step_state(row, batch, row.n_new);
    Step& step = launched[n_launched++];
    step.fails = n_calls++ == fails_at;
    logits.clear();
    for (const std::uint32_t index : batch.wanted)
      is_encoder ? append_encoded(batch, index) : append_logits(batch, index);
    pick(batch, step);
    step.logits = logits;
    return {};
  }

  Result<StepOutput> collect() override {
    KVASIR_CHECK(n_launched > 0) << "nothing was launched";
    std::swap(out, launched[0]);
    std::swap(launched[0], launched[1]);
    --n_launched;
    if (out.fails) {
      // A later step read what this one wrote.
      for (TokenId& token : launched[0].picked) token = kVocab - 1;
      return Error{Errc::device, "kernel failed"};
    }
    return StepOutput{{out.logits.data(), out.logits.size() / output_width(), output_width()},
                      out.picked};
  }
  std::size_t n_launched = 0;  // and not collected
  std::uint32_t n_ahead = 0;   // steps launched before the one before them was collected

 private:
  struct Step {
    std::vector<float> logits;
    std::vector<TokenId> picked;
    bool fails = false, wants_scores = false;
  };
  Step launched[2], out;
  std::vector<float> logits;         // of the batch being launched
  std::vector<TokenId> last_picked;  // by the batch launched last

  std::vector<TokenId> tokens_of(const StepBatch& batch) const {
    std::vector<TokenId> tokens(batch.tokens.begin(), batch.tokens.end());
    for (TokenId& token : tokens) {
      if (!is_picked(token)) continue;
      token = last_picked.at(row_of_picked(token));
      if (token == kNoToken) token = 0;  // its row is nobody's any more
    }
    return tokens;
  }
  // The host's token of such a row.
  static TokenId token_of(std::span<const float> scores, const PickRow& row) {
    SamplingOptions options;
    options.temperature = row.kind == PickKind::drawn ? 1.0f / row.scale : 0.0f;
    sampling::SamplingSession session =
        *sampling::SamplingSession::make(options, {kVocab, {}, {}, row.seed});
    const Result<Sampled> sampled = session.sample(scores, row.position);
    return sampled ? sampled->token : kNoToken;
  }
  // A row that is picked from shows no scores.
  void pick(const StepBatch& batch, Step& step) {
    step.picked.assign(batch.picks.size(), kNoToken);
    step.wants_scores = batch.picks.empty() && !batch.wanted.empty();
    for (std::size_t i = 0; i < batch.picks.size(); ++i) {
      const std::span<float> row{logits.data() + i * kVocab, kVocab};
      step.wants_scores |= batch.picks[i].kind == PickKind::none;
      if (batch.picks[i].kind == PickKind::none) continue;
      step.picked[i] = token_of(row, batch.picks[i]);
      std::fill(row.begin(), row.end(), 1e9f);
    }
    last_picked = step.picked;
  }
  // The hash of a row's tokens after its first n new ones.
  static std::uint64_t state_after(const RecurrentRowView& row,
                                   const StepBatch& batch,
                                   std::uint32_t n) {
    std::uint64_t hash = 1;
    if (row.delta_from) std::memcpy(&hash, row.delta_from, sizeof hash);
    for (std::uint32_t i = 0; i < n; ++i) hash = mix(hash, batch.tokens[row.first_token + i]);
    return hash;
  }
  static void step_state(const RecurrentRowView& row, const StepBatch& batch, std::uint32_t n) {
    const std::uint64_t hash = state_after(row, batch, n);
    std::memcpy(row.delta_to, &hash, sizeof hash);
    std::memcpy(row.conv_to, &batch.tokens[row.first_token + n - 1], 4);
  }
  struct Slot {
    std::byte* k;
    std::byte* v;
  };
  static Slot slot(const KvLayerView& layer, const KvRowView& row, std::uint32_t position) {
    KVASIR_CHECK(position >= row.first_position) << "reads a released position";
    const BlockId block = row.blocks[position / layer.block_tokens];
    const std::uint32_t in_block = position % layer.block_tokens;
    if (!row.is_encoded) {
      const std::size_t at = layer.offset(block, 0, in_block);
      return {layer.k + at, layer.v + at};
    }
    const std::size_t index = layer.row_index(block, 0, in_block);
    return {layer.k_encoded.row(index).planes[0], layer.v_encoded.row(index).planes[0]};
  }
  static void write(const KvLayerView& layer, const StepBatch& batch) {
    for (const KvRowView& row : layer.rows) {
      for (std::uint32_t i = 0; i < row.n_new; ++i) {
        const std::uint32_t position = row.length + i;
        KVASIR_CHECK(batch.positions[row.first_token + i] == position)
            << "positions disagree with the KV";
        const Slot at = slot(layer, row, position);
        std::memcpy(at.k, &batch.tokens[row.first_token + i], 4);
        std::memcpy(at.v, &position, 4);
      }
    }
  }
  static std::uint32_t read(const KvLayerView& layer,
                            const KvRowView& row,
                            std::uint32_t position) {
    const Slot at = slot(layer, row, position);
    std::uint32_t token = 0, stored = 0;
    std::memcpy(&token, at.k, 4);
    std::memcpy(&stored, at.v, 4);
    KVASIR_CHECK(stored == position) << "slot of position " << position << " holds " << stored;
    return token;
  }
  static std::uint64_t fold(const KvLayerView& layer, std::size_t row, std::uint32_t position) {
    std::uint64_t hash = 1;
    const std::uint32_t first =
        layer.window > 0 && position >= layer.window ? position - layer.window + 1 : 0;
    for (std::uint32_t p = first; p <= position; ++p)
      hash = mix(hash, read(layer, layer.rows[row], p));
    return hash;
  }
  void append_encoded(const StepBatch& batch, std::uint32_t index) {
    const std::uint32_t begin = index - batch.positions[index];
    std::uint32_t end = index + 1;
    while (end < batch.tokens.size() && batch.positions[end] != 0) ++end;
    std::vector<float> values =
        encoder_row(batch.tokens.subspan(begin, end - begin), index - begin);
    if (nan_token && batch.tokens[begin] == *nan_token)
      values[0] = std::numeric_limits<float>::quiet_NaN();
    logits.insert(logits.end(), values.begin(), values.end());
  }
  void append_logits(const StepBatch& batch, std::uint32_t index) {
    const KvLayerView& full = batch.kv.attention[0];
    std::size_t row = 0;
    while (index >= full.rows[row].first_token + full.rows[row].n_new) ++row;
    const std::uint32_t position = batch.positions[index];
    KVASIR_CHECK(fold(full, row, position) == fold(batch.kv.attention[2], row, position))
        << "layers disagree";
    for (const RecurrentLayerView& layer : batch.kv.recurrent) {
      if (layer.rows.empty()) continue;
      const std::uint32_t n = index - layer.rows[row].first_token + 1;
      KVASIR_CHECK(state_after(layer.rows[row], batch, n) == fold(full, row, position))
          << "the state is of other tokens";
    }
    std::vector<float> values =
        logits_of(fold(full, row, position), fold(batch.kv.attention[1], row, position));
    if (nan_token && read(full, full.rows[row], 0) == *nan_token)
      values[is_trunk ? 0 : 7] = std::numeric_limits<float>::quiet_NaN();
    if (is_trunk) values.resize(kHidden);
    logits.insert(logits.end(), values.begin(), values.end());
  }
};

// A conversion that keeps what the executor wrote: the first four bytes of every row.
inline void convert_slots(ops::Device&, const ops::KvConvertArgs& a) noexcept {
  for (std::uint32_t p = a.begin; p < a.end; ++p) {
    const std::uint32_t block = p / a.kv.block_tokens, slot = p % a.kv.block_tokens;
    const std::size_t from = a.kv.offset(a.from[block], 0, slot);
    const std::size_t to = a.kv.row_index(a.to[block], 0, slot);
    std::memcpy(a.kv.k_encoded.row(to).planes[0], a.kv.k + from, 4);
    std::memcpy(a.kv.v_encoded.row(to).planes[0], a.kv.v + from, 4);
  }
}

// What a request's sink was given, and what it answers. Outlives the sink.
struct Record {
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::vector<Logprobs> prompt_logprobs;
  std::vector<float> hidden;
  bool refuses_hidden = false;
  std::vector<Outcome> outcomes;
  std::optional<std::size_t> stops_at;  // token index answered with stop
  std::optional<std::size_t> fails_at;
  bool is_paused = false;
  std::function<void(std::size_t)> on_token;  // index, before the answer
  std::vector<std::string>* trace = nullptr;
  std::string name;

  const Outcome& outcome() const {
    KVASIR_CHECK(outcomes.size() == 1) << "finish was called " << outcomes.size() << " times";
    return outcomes.front();
  }
  bool is_over() const { return !outcomes.empty(); }
};

class RecordingSink final : public Sink {
 public:
  explicit RecordingSink(Record& record) : record_(record) {}
  Result<SinkReply> commit(std::span<const TokenId> tokens,
                           std::span<const Logprobs> logprobs) override {
    KVASIR_CHECK(tokens.size() == 1 && !record_.is_over());
    if (record_.trace)
      record_.trace->push_back("commit " + record_.name + " " + std::to_string(tokens[0]));
    const std::size_t index = record_.tokens.size();
    record_.tokens.push_back(tokens[0]);
    for (const Logprobs& entry : logprobs) record_.logprobs.push_back(entry);
    if (record_.on_token) record_.on_token(index);
    if (index == record_.fails_at) return io_error("broken pipe");
    return index == record_.stops_at ? SinkReply::stop : SinkReply::more;
  }
  Status commit_prompt(std::span<const Logprobs> logprobs) override {
    record_.prompt_logprobs.insert(record_.prompt_logprobs.end(), logprobs.begin(), logprobs.end());
    return {};
  }
  Status commit_hidden(const HiddenRows& rows) override {
    KVASIR_CHECK(rows.width == kHidden && !record_.is_over());
    if (record_.refuses_hidden) return io_error("broken pipe");
    record_.hidden.insert(record_.hidden.end(), rows.values.begin(), rows.values.end());
    return {};
  }
  bool is_paused() const noexcept override { return record_.is_paused; }
  void finish(Outcome outcome) noexcept override {
    if (record_.trace) record_.trace->push_back("finish " + record_.name);
    record_.outcomes.push_back(std::move(outcome));
  }

 private:
  Record& record_;
};

struct NaiveRun {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::length;
};

// What a request must produce, alone and undisturbed.
inline NaiveRun naive_run(const GenerateOptions& options,
                          std::uint64_t max_tokens,
                          std::uint64_t seed) {
  const std::vector<TokenId> eos{kEos};
  auto session = *sampling::SamplingSession::make(options.sampling, {kVocab, eos, {}, seed});
  session.seed_history(options.prompt, {});
  std::vector<TokenId> history = options.prompt;
  NaiveRun run;
  while (run.tokens.size() < max_tokens) {
    const TokenId token = session.sample(naive_logits(history), run.tokens.size())->token;
    if (token == kEos) {
      run.reason = FinishReason::stop;
      break;
    }
    session.commit(token);
    history.push_back(token);
    run.tokens.push_back(token);
  }
  return run;
}

struct Rig {
  kv::TestDevice device;
  ManualClock clock;
  FakeExecutor executor;
  std::unique_ptr<Engine> engine;

  // n_blocks: of the pool; a block is block_tokens tokens of one group of layers.
  explicit Rig(EngineOptions options = {},
               std::size_t n_blocks = 4096,
               bool has_cache = true,
               std::uint32_t block_tokens = 8,
               const Clock* other_clock = nullptr,
               kv::KvScheme scheme = {},
               bool has_state = false,
               bool is_encoder = false) {
    if (has_state) executor.list.insert(executor.list.end(), 2, kStateLayer);
    executor.is_encoder = is_encoder;
    if (is_encoder) executor.list.clear();
    options.eos_ids = {kEos};
    options.cache_namespace = "test";
    scheme.type = DType::f32;
    if (scheme.kind != kv::KvSchemeKind::exact) {
      for (KvLayerSpec& layer : executor.list) layer.head_dim = 32;
      device.set_convert(convert_slots);
    }
    kv::KvStoreOptions store_options{.scheme = scheme, .block_tokens = block_tokens};
    store_options.budget_bytes = std::size_t{1} << 20;
    store_options.split_tokens = 128;
    const auto probe = *kv::KvStore::make(device, executor.list, store_options);
    if (!is_encoder) store_options.budget_bytes = n_blocks * probe->block_bytes(0);
    auto store = *kv::KvStore::make(device, executor.list, store_options);
    std::unique_ptr<cache::PrefixCache> cache;
    if (has_cache)
      cache = std::make_unique<cache::PrefixCache>(*store, cache::PrefixCacheOptions{});
    engine = *Engine::make(
        {executor, other_clock ? *other_clock : clock, std::move(store), std::move(cache)},
        std::move(options));
  }
  std::unique_ptr<Sink> sink(Record& record) { return std::make_unique<RecordingSink>(record); }
  // Steps until nothing lives; returns how many steps ran.
  int run(int n_most = 100000) {
    int n_steps = 0;
    while (engine->has_requests() && n_steps < n_most) {
      const StepReport report = engine->step();
      if (report.is_idle && report.n_ended == 0) break;
      n_steps += report.is_idle ? 0 : 1;
      const std::string wrong = engine->check_invariants();
      KVASIR_CHECK(wrong.empty()) << wrong;
    }
    return n_steps;
  }
};

inline std::vector<TokenId> prompt_of(std::size_t n, std::uint64_t seed) {
  std::vector<TokenId> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<TokenId>(1 + mix(seed, i) % (kVocab - 1));
  return out;
}

inline GenerateOptions greedy(std::vector<TokenId> prompt, std::uint32_t max_tokens) {
  GenerateOptions options;
  options.prompt = std::move(prompt);
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0;
  return options;
}

// A prompt whose greedy run has at least n tokens before EOS.
inline std::vector<TokenId> long_prompt(std::size_t n_prompt, std::size_t n_tokens) {
  for (std::uint64_t seed = 1;; ++seed) {
    std::vector<TokenId> prompt = prompt_of(n_prompt, seed);
    if (naive_run(greedy(prompt, 0), n_tokens, 0).tokens.size() == n_tokens) return prompt;
  }
}

// A prompt whose greedy run is exactly n tokens, then EOS.
inline std::vector<TokenId> ending_prompt(std::size_t n_prompt, std::size_t n_tokens) {
  for (std::uint64_t seed = 1;; ++seed) {
    std::vector<TokenId> prompt = prompt_of(n_prompt, seed);
    const NaiveRun run = naive_run(greedy(prompt, 0), n_tokens + 1, 0);
    if (run.tokens.size() == n_tokens && run.reason == FinishReason::stop) return prompt;
  }
}

}  // namespace kvasir::engine::scripted
