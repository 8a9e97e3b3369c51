// Embedder: what of an embedding model is neither tokens nor graph (MOD-61): how a text is framed,
// which hidden rows count, and the vector made of them. Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "contract/generate_options.h"
#include "contract/sink.h"
#include "formats/model_files.h"
#include "formats/pooling.h"
#include "kvasir/embedding.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace kvasir {

class Embedder {
 public:
  // Of a model whose output is hidden rows. Where it does not say how they are pooled, decoders use
  // the last one, encoders the mean.
  static Result<Embedder> make(const formats::ModelFiles& files,
                               const model::Model& model,
                               const text::Tokenizer& tokenizer);

  std::uint32_t width() const noexcept { return width_; }
  formats::Pooling pooling() const noexcept { return pooling_; }
  WantedHidden wanted() const noexcept {
    return pooling_ == formats::Pooling::last ? WantedHidden::last : WantedHidden::all;
  }
  // Errors: dimensions beyond the model's width, no inputs, an instruction for token ids.
  Status check(const EmbedRequest& request) const;
  // An input as fed; with `truncates` at most `context` tokens of it, its end tokens kept.
  Result<std::vector<TokenId>> tokens_of(const EmbedRequest& request,
                                         const EmbedInput& input,
                                         std::uint64_t context) const;

 private:
  explicit Embedder(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  text::Tokenizer tokenizer_;
  std::uint32_t width_ = 0;
  std::size_t n_end_tokens_ = 0;  // that the tokenizer puts behind a text
  formats::Pooling pooling_ = formats::Pooling::mean;
  std::optional<TokenId> end_token_;  // each input ends with it once
};

// One input's vector, from hidden rows in any portions: sums in f64, row after row, so that
// portions change nothing.
class Pooler {
 public:
  Pooler(formats::Pooling pooling, std::uint32_t width) : pooling_(pooling), sums_(width) {}

  void add(const HiddenRows& rows);
  // The pooled row's first `dimensions`, divided by their length. Zero rows stay zero.
  std::vector<float> vector(std::optional<std::uint32_t> dimensions) const;

 private:
  formats::Pooling pooling_;
  std::vector<double> sums_;
};

}  // namespace kvasir
