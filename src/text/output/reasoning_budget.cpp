#include "text/reasoning_budget.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/output/json_scan.h"
#include "text/output/reasoning.h"

namespace kvasir::text {
namespace {

struct Block {
  std::string open, close;
  std::vector<TokenId> close_ids;
};

// What every clone of a constraint shares.
struct Rules {
  Tokenizer tokenizer;
  ReasoningBudget budget;
  std::vector<Block> blocks;
  std::size_t longest_marker = 0;

  // Only harmony opens a block again: its analysis is a message of its own.
  bool reopens() const { return budget.format == ReasoningFormat::harmony; }
};

enum class Phase : std::uint8_t { before, inside, after };

// Behind a number of tokens. Which block it is in decides how it closes.
struct Place {
  Phase phase = Phase::before;
  std::uint8_t block = 0;
  std::uint32_t n_reasoning = 0;
  std::uint32_t n_closing = 0;  // ids of the closing marker that were forced
};

class Constraint final : public TokenConstraint {
 public:
  explicit Constraint(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {
    Place first;
    if (rules_->budget.starts_open) first.phase = Phase::inside;
    places_.push_back(first);
  }

  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<Constraint>(*this);
  }
  Result<std::span<const std::uint32_t>> mask() override {
    const std::span<const TokenId> next = forced();
    if (next.empty()) return std::span<const std::uint32_t>();
    words_.assign((rules_->budget.vocab + 31) / 32, 0);
    words_[next.front() / 32] = 1u << (next.front() % 32);
    return std::span<const std::uint32_t>(words_);
  }
  std::span<const TokenId> forced() override {
    const Place& at = places_.back();
    if (at.phase != Phase::inside || at.n_reasoning < rules_->budget.n_tokens) return {};
    return std::span(rules_->blocks[at.block].close_ids).subspan(at.n_closing);
  }
  Result<bool> advance(TokenId token) override {
    const bool is_forced = !forced().empty();
    tokens_.push_back(token);
    places_.push_back(is_forced ? closed_by_force(places_.back()) : moved(places_.back()));
    return false;
  }
  std::size_t snapshot() const noexcept override { return tokens_.size(); }
  void restore(std::size_t mark) noexcept override {
    if (mark >= tokens_.size()) return;
    tokens_.resize(mark);
    places_.resize(mark + 1);
  }

 private:
  Place closed_by_force(Place at) const {
    if (++at.n_closing == rules_->blocks[at.block].close_ids.size())
      at = {.phase = Phase::after, .block = at.block, .n_reasoning = at.n_reasoning};
    return at;
  }
  Place moved(Place at) const {
    const std::string text = tail();
    if (at.phase == Phase::inside) {
      ++at.n_reasoning;
      const std::vector<Block>& blocks = rules_->blocks;
      if (std::any_of(blocks.begin(), blocks.end(),
                      [&](const Block& block) { return text.ends_with(block.close); }))
        at.phase = Phase::after;
      return at;
    }
    if (at.phase == Phase::after && !rules_->reopens()) return at;
    return opened(at, text);
  }
  // Reasoning opens at the start of the output, or anywhere where it may open again.
  Place opened(Place at, std::string_view text) const {
    bool may_open = rules_->reopens();
    for (std::size_t i = 0; i < rules_->blocks.size(); ++i) {
      const std::string& open = rules_->blocks[i].open;
      if (rules_->reopens() ? text.ends_with(open) : out::trim(text) == open) {
        at.phase = Phase::inside;
        at.block = static_cast<std::uint8_t>(i);
        return at;
      }
      may_open |= open.starts_with(out::trim(text));
    }
    if (!may_open) at.phase = Phase::after;
    return at;
  }
  // The text of the last tokens, longer than any marker. At the start of the output that is all of
  // it: text that is longer opens nothing.
  std::string tail() const {
    std::string text;
    for (std::size_t i = tokens_.size(); i-- > 0 && text.size() <= rules_->longest_marker + 16;)
      text.insert(0, text_of(tokens_[i]));
    return text;
  }
  std::string text_of(TokenId token) const {
    const Tokenizer& t = rules_->tokenizer;
    return t.is_special(token) ? std::string(t.piece(token)) : t.token_bytes(token);
  }

  std::shared_ptr<const Rules> rules_;  // shared by all rows of a request
  std::vector<TokenId> tokens_;
  std::vector<Place> places_;  // [tokens + 1]
  std::vector<std::uint32_t> words_;
};

std::vector<Block> blocks_of(ReasoningFormat format) {
  if (format == ReasoningFormat::harmony)
    return {{.open = "<|channel|>analysis<|message|>", .close = "<|end|>", .close_ids = {}}};
  std::vector<Block> out;
  for (const out::ReasoningPair& pair : out::reasoning_pairs(format))
    out.push_back({.open = std::string(pair.open) + std::string(pair.after_open),
                   .close = std::string(pair.close),
                   .close_ids = {}});
  return out;
}

}  // namespace

Result<std::shared_ptr<const TokenConstraint>> make_reasoning_constraint(
    const Tokenizer& tokenizer, const ReasoningBudget& budget) {
  auto rules = std::make_shared<Rules>(Rules{tokenizer, budget, blocks_of(budget.format)});
  if (rules->blocks.empty()) return std::shared_ptr<const TokenConstraint>();
  for (Block& block : rules->blocks) {
    KVASIR_TRY(block.close_ids,
               tokenizer.encode(block.close, {.add_special = false, .parse_special = true}));
    rules->longest_marker =
        std::max({rules->longest_marker, block.open.size(), block.close.size()});
    for (const TokenId id : block.close_ids)
      if (id >= budget.vocab) return invalid("a reasoning marker is not in the model's vocabulary");
    if (block.close_ids.empty()) return invalid("the tokenizer cannot spell " + block.close);
  }
  // A family has pairs of several vendors; the vocabulary knows this model's as one token.
  std::stable_sort(rules->blocks.begin(), rules->blocks.end(), [](const Block& a, const Block& b) {
    return (a.close_ids.size() == 1) > (b.close_ids.size() == 1);
  });
  return std::shared_ptr<const TokenConstraint>(std::make_shared<Constraint>(std::move(rules)));
}

}  // namespace kvasir::text
