#include "text/detokenizer.h"

#include "text/tokenizer/pipeline.h"

namespace kvasir::text {

struct Detokenizer::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  tok::DecodeChain chain;
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(std::make_unique<State>(
          State{tokenizer, options,
                tokenizer.pipeline().decoder.start({.is_start = options.is_start})})) {}
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

std::string Detokenizer::push(TokenId id) {
  const Tokenizer& t = state_->tokenizer;
  if (!t.has_token(id) || (state_->options.skip_special && t.is_special(id))) return {};
  state_->chain.push(t.piece(id));
  return state_->chain.take();
}

std::string Detokenizer::finish() {
  state_->chain.finish();
  return state_->chain.take();
}

}  // namespace kvasir::text
