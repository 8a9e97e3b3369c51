#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "backend/cpu/isa.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "kvasir/verify.h"
#include "kvasir/verify/rig.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kLengths[] = {3, 17, 31, 64, 65, 100, 129, 200, 300};

struct Case {
  GenerateOptions options;
  Answer expected;
};

struct Tally {
  std::uint64_t n_compared = 0, n_differ = 0, n_exercised = 0;
};

class SameBits {
 public:
  SameBits(const SameBitsOptions& options, const Line& line) : options_(options), line_(line) {}

  Result<Summary> run() {
    KVASIR_TRY(const auto base, open(n_threads(), 64, false));
    KVASIR_TRY_DO(expect_alone(*base));
    for (const std::uint32_t n : {2u, 5u, 8u}) KVASIR_TRY_DO(batches(*base, n));
    for (const std::uint32_t chunk : {1u, 7u, 64u, 2048u}) KVASIR_TRY_DO(chunks(*base, chunk));
    KVASIR_TRY_DO(choices(*base));
    KVASIR_TRY_DO(without_logprobs());
    for (const std::uint32_t block : {8u, 64u, 256u}) KVASIR_TRY_DO(block_size(block));
    if (is_threaded()) {
      for (const int n : {1, 2}) KVASIR_TRY_DO(threads(n));
      for (const auto isa : backend::cpu::kIsas) {
        if (backend::cpu::cpu_supports(isa)) KVASIR_TRY_DO(instruction_set(isa));
      }
    }
    if (chosen_backend(options_.open.backend) == Backend::cuda) KVASIR_TRY_DO(without_graphs());
    KVASIR_TRY_DO(cache_states());
    return summarize();
  }

 private:
  bool is_threaded() const { return chosen_backend(options_.open.backend) == Backend::cpu; }
  int n_threads() const {
    return options_.open.n_threads > 0 ? options_.open.n_threads : default_thread_count();
  }

  Result<std::unique_ptr<Rig>> open(int n,
                                    std::uint32_t block_tokens,
                                    bool with_cache,
                                    bool use_graphs = true,
                                    bool runs_ahead = false) const {
    return Rig::open({.open = options_.open,
                      .n_threads = n,
                      .use_graphs = use_graphs,
                      .block_tokens = block_tokens,
                      .with_cache = with_cache,
                      .plant_row_count_fault = options_.plant_row_count_fault,
                      .runs_ahead = runs_ahead});
  }

  GenerateOptions make_options(std::uint32_t i, std::vector<TokenId> prompt) const {
    GenerateOptions options;
    options.prompt = std::move(prompt);
    options.max_tokens = options_.n_generate;
    options.eos_ids = std::vector<TokenId>{};
    options.prompt_cache = false;
    options.sampling.logprobs = true;
    options.sampling.top_logprobs = 3;
    options.sampling.seed = 1000 + i;
    options.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
    if (i % 3 == 2) {
      options.sampling.top_p = 0.9f;
      options.sampling.repetition_penalty = 1.1f;
    }
    return options;
  }

  std::vector<TokenId> random_tokens(std::uint32_t stream,
                                     std::uint32_t n,
                                     std::uint32_t vocab) const {
    std::vector<TokenId> tokens(n);
    for (std::uint32_t i = 0; i < n; ++i)
      tokens[i] = philox4x32({i, 0, 0, stream}, {42, 7})[0] % vocab;
    return tokens;
  }

  // Prompts that end around the position where KV state becomes encoded: before it, so that
  // decoding crosses it, at it, and after it.
  std::vector<std::uint32_t> lengths(const Rig& rig) {
    std::vector<std::uint32_t> out(std::begin(kLengths), std::end(kLengths));
    transition_ = rig.transition();
    if (transition_ == 0 || transition_ >= rig.context()) return out;
    const auto t = static_cast<std::uint32_t>(transition_);
    for (const std::uint32_t n : {t - 3, t, t + 1, t + 70})
      if (std::find(out.begin(), out.end(), n) == out.end()) out.push_back(n);
    return out;
  }

  // Prompt steps of a lone run: none crosses the transition (KV-23).
  std::uint64_t n_chunks(std::uint64_t length, std::uint64_t chunk) const {
    const std::uint64_t below = std::min(length, transition_);
    return (below + chunk - 1) / chunk + (length - below + chunk - 1) / chunk;
  }

  Status expect_alone(Rig& rig) {
    std::uint32_t i = 0;
    for (const std::uint32_t length : lengths(rig)) {
      const std::uint32_t stream = i++;
      if (length + 2 * options_.n_generate + 8 > rig.context()) continue;
      Case c{make_options(stream, random_tokens(stream, length, rig.vocab())), {}};
      KVASIR_TRY(c.expected, rig.run_alone(c.options));
      if (c.expected.tokens.size() != options_.n_generate)
        return Error{Errc::device, "a lone run did not finish: " + failure_of(c.expected)};
      cases_.push_back(std::move(c));
    }
    if (cases_.empty())
      return invalid("the model's context is too short for any prompt of this check");
    return {};
  }

  static std::string failure_of(const Answer& answer) {
    const Failed* failed = answer.outcome.failed();
    return failed ? failed->code + ": " + failed->message : "no failure reported";
  }

  void compare(const std::string& variation,
               const Answer& got,
               const Answer& expected,
               bool took_place) {
    Tally& tally = tallies_[variation];
    if (!took_place) return;
    ++tally.n_exercised;
    ++tally.n_compared;
    if (!got.finished || !verify::same_bits(got, expected)) ++tally.n_differ;
  }

  // n rows at once: a neighbour that leaves, prompts that join one a step.
  Status batches(Rig& rig, std::uint32_t n) {
    const std::string name = "batch of " + std::to_string(n);
    tallies_[name];
    for (std::size_t first = 0; first < cases_.size(); first += n - 1) {
      rig.reset_most_rows();
      GenerateOptions neighbour = make_options(77, random_tokens(99, 40, rig.vocab()));
      neighbour.max_tokens = 400;
      CancellationSource leaves;
      neighbour.cancellation = leaves.token();
      KVASIR_TRY_DO(rig.submit(neighbour));
      std::vector<std::pair<const Case*, std::shared_ptr<Answer>>> running;
      for (std::uint32_t i = 0; i + 1 < n; ++i) {
        const Case& c = cases_[(first + i) % cases_.size()];
        KVASIR_TRY_DO(rig.step());
        KVASIR_TRY(auto answer, rig.submit(c.options));
        running.emplace_back(&c, std::move(answer));
      }
      for (int i = 0; i < 6; ++i) KVASIR_TRY_DO(rig.step());
      leaves.cancel(CancelReason::consumer_closed);
      KVASIR_TRY_DO(rig.run_until_idle());
      for (const auto& [c, answer] : running)
        compare(name, *answer, c->expected, rig.most_rows() >= n);
    }
    return {};
  }

  Status chunks(Rig& rig, std::uint32_t chunk) {
    const bool whole = chunk >= 2048;
    const std::string name = whole ? "whole prompt" : "chunks of " + std::to_string(chunk);
    tallies_[name];
    for (const Case& c : cases_) {
      GenerateOptions options = c.options;
      options.prefill_chunk = chunk;
      KVASIR_TRY(const Answer answer, rig.run_alone(options));
      const std::uint64_t n = n_chunks(options.prompt.size(), chunk);
      const bool took_place =
          answer.outcome.stats.steps == n + options_.n_generate - 1 && (whole || n > 1);
      compare(name, answer, c.expected, took_place);
    }
    return {};
  }

  Status choices(Rig& rig) {
    const std::string name = "first of 2 choices";
    tallies_[name];
    for (const Case& c : cases_) {
      rig.reset_most_rows();
      KVASIR_TRY(const auto answers, rig.submit_choices(c.options, 2));
      KVASIR_TRY_DO(rig.run_until_idle());
      compare(name, *answers[0], c.expected, rig.most_rows() == 2);
    }
    return {};
  }

  // Rows whose tokens are picked where their scores are, and whose next step is launched before
  // those are read (EXE-10): alone, together, and beside rows whose scores the host reads.
  Status without_logprobs() {
    KVASIR_TRY(const auto opened, open(n_threads(), 64, false, true, /*runs_ahead=*/true));
    Rig& rig = *opened;
    const std::string alone = "no logprobs", together = "no logprobs, together",
                      beside = "no logprobs, beside some";
    std::vector<Case> plain;
    for (const Case& c : cases_) {
      if (c.options.sampling.repetition_penalty != 1.0f) continue;  // the host's
      plain.push_back(c);
      plain.back().options.sampling.logprobs = false;
      plain.back().options.sampling.top_logprobs = 0;
      plain.back().expected.logprobs.clear();
    }
    for (const Case& c : plain) {
      const std::uint64_t n_ahead = rig.n_ahead();
      KVASIR_TRY(const Answer answer, rig.run_alone(c.options));
      compare(alone, answer, c.expected, rig.n_ahead() > n_ahead);
    }
    for (const std::string& name : {together, beside}) {
      tallies_[name];
      for (std::size_t first = 0; first < plain.size(); first += 3) {
        rig.reset_most_rows();
        std::vector<std::pair<const Case*, std::shared_ptr<Answer>>> running;
        for (std::size_t i = first; i < std::min(first + 3, plain.size()); ++i) {
          KVASIR_TRY(auto answer, rig.submit(plain[i].options));
          running.emplace_back(&plain[i], std::move(answer));
        }
        if (name == beside) {
          GenerateOptions neighbour = cases_.back().options;
          KVASIR_TRY_DO(rig.submit(neighbour));
        }
        KVASIR_TRY_DO(rig.run_until_idle());
        for (const auto& [c, answer] : running)
          compare(name, *answer, c->expected, rig.most_rows() > 1);
      }
    }
    return {};
  }

  Status rerun(const std::string& name, Rig& rig, bool took_place) {
    tallies_[name];
    for (const Case& c : cases_) {
      KVASIR_TRY(const Answer answer, rig.run_alone(c.options));
      compare(name, answer, c.expected, took_place);
    }
    return {};
  }

  Status block_size(std::uint32_t block_tokens) {
    KVASIR_TRY(const auto rig, open(n_threads(), block_tokens, false));
    return rerun("block size " + std::to_string(block_tokens), *rig, true);
  }

  Status threads(int n) {
    KVASIR_TRY(const auto rig, open(n, 64, false));
    return rerun(std::to_string(n) + (n == 1 ? " thread" : " threads"), *rig,
                 rig->n_threads() == n);
  }

  // Every step launched kernel by kernel (EXE-48).
  Status without_graphs() {
    KVASIR_TRY(const auto rig, open(n_threads(), 64, false, /*use_graphs=*/false));
    return rerun("without graphs", *rig, true);
  }

  Status instruction_set(backend::cpu::Isa isa) {
    const std::string name(backend::cpu::name_of(isa));
    OpenOptions open = options_.open;
    open.isa = name;
    KVASIR_TRY(const auto rig,
               Rig::open({.open = open,
                          .n_threads = n_threads(),
                          .block_tokens = 64,
                          .with_cache = false,
                          .plant_row_count_fault = options_.plant_row_count_fault}));
    return rerun("--isa " + name, *rig, true);
  }

  // Cold, the same prompt again, and a next turn that continues after the answer.
  Status cache_states() {
    KVASIR_TRY(const auto rig, open(n_threads(), 64, true));
    for (const char* name : {"cache cold", "cache warm", "next turn from the cache"})
      tallies_[name];
    for (const Case& c : cases_) {
      GenerateOptions options = c.options;
      options.prompt_cache = true;
      options.snapshot_at = {static_cast<std::uint32_t>(options.prompt.size() - 1)};
      KVASIR_TRY(const Answer cold, rig->run_alone(options));
      compare("cache cold", cold, c.expected, cold.outcome.stats.cached_tokens == 0);
      KVASIR_TRY(const Answer warm, rig->run_alone(options));
      compare("cache warm", warm, c.expected, warm.outcome.stats.cached_tokens > 0);

      GenerateOptions next = c.options;
      next.prompt.insert(next.prompt.end(), c.expected.tokens.begin(), c.expected.tokens.end());
      for (const TokenId t : random_tokens(55, 5, rig->vocab())) next.prompt.push_back(t);
      KVASIR_TRY(const Answer expected, rig->run_alone(next));
      next.prompt_cache = true;
      KVASIR_TRY(const Answer got, rig->run_alone(next));
      compare("next turn from the cache", got, expected,
              got.outcome.stats.cached_tokens >= c.options.prompt.size());
    }
    return {};
  }

  Summary summarize() const {
    Summary summary;
    std::uint64_t n_unexercised = 0;
    for (const auto& [name, tally] : tallies_) {
      summary.n_checked += tally.n_compared;
      summary.n_failed += tally.n_differ;
      if (tally.n_exercised == 0) {
        ++n_unexercised;
        line_("not exercised: " + name);
        continue;
      }
      line_((tally.n_differ == 0 ? "ok    " : "DIFFER ") + name + ": " +
            std::to_string(tally.n_compared) + " compared, " + std::to_string(tally.n_differ) +
            " differ");
    }
    summary.text = std::to_string(summary.n_checked) + " comparisons, " +
                   std::to_string(summary.n_failed) + " differ";
    if (n_unexercised > 0)
      summary.text += ", " + std::to_string(n_unexercised) + " variations not exercised";
    summary.n_failed += n_unexercised;
    return summary;
  }

  const SameBitsOptions& options_;
  const Line& line_;
  std::vector<Case> cases_;
  std::uint64_t transition_ = 0;
  std::map<std::string, Tally> tallies_;
};

}  // namespace

Result<Summary> same_bits(const SameBitsOptions& options, const Line& line) {
  return SameBits(options, line).run();
}

}  // namespace kvasir::verify
