#include "kvasir/embed/embedder.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace kvasir {
namespace {

// How many tokens the tokenizer puts behind a text.
Result<std::size_t> count_end_tokens(const text::Tokenizer& tokenizer) {
  const auto encode = [&](bool adds_special) {
    return tokenizer.encode("a", {.add_special = adds_special, .parse_special = false});
  };
  KVASIR_TRY(const std::vector<TokenId> plain, encode(false));
  KVASIR_TRY(const std::vector<TokenId> framed, encode(true));
  const auto found = std::search(framed.begin(), framed.end(), plain.begin(), plain.end());
  if (found == framed.end()) return std::size_t{0};
  return static_cast<std::size_t>(framed.end() - found) - plain.size();
}

std::string query_of(const EmbedRequest& request, const std::string& text) {
  if (!request.instruction) return text;
  return "Instruct: " + *request.instruction + "\nQuery:" + text;
}

}  // namespace

Result<Embedder> Embedder::make(const formats::ModelFiles& files,
                                const model::Model& model,
                                const text::Tokenizer& tokenizer) {
  Embedder out(tokenizer);
  out.width_ = model.output_width();
  KVASIR_TRY(const auto pooling, formats::find_pooling(files));
  out.pooling_ =
      pooling.value_or(model.takes_whole_rows() ? formats::Pooling::mean : formats::Pooling::last);
  KVASIR_TRY(out.n_end_tokens_, count_end_tokens(tokenizer));
  // The row of the end token is what such a model was trained to pool; a tokenizer that adds one by
  // itself may add another than its eos.
  if (out.pooling_ != formats::Pooling::last) return out;
  out.end_token_ = tokenizer.eos();
  if (out.n_end_tokens_ > 0) {
    KVASIR_TRY(const auto framed, tokenizer.encode("a", {.parse_special = false}));
    out.end_token_ = framed.back();
  }
  return out;
}

Status Embedder::check(const EmbedRequest& request) const {
  if (request.inputs.empty()) return invalid("input must not be empty");
  if (request.dimensions && (*request.dimensions == 0 || *request.dimensions > width_))
    return invalid("dimensions must be 1 to " + std::to_string(width_));
  const bool has_tokens = std::any_of(request.inputs.begin(), request.inputs.end(),
                                      [](const EmbedInput& i) { return !i.tokens.empty(); });
  if (request.instruction && has_tokens)
    return invalid("instruction needs text inputs, not token ids");
  return {};
}

Result<std::vector<TokenId>> Embedder::tokens_of(const EmbedRequest& request,
                                                 const EmbedInput& input,
                                                 std::uint64_t context) const {
  std::vector<TokenId> tokens = input.tokens;
  std::size_t n_kept = 0;  // of the end
  if (tokens.empty()) {
    KVASIR_TRY(tokens, tokenizer_.encode(query_of(request, input.text), {.parse_special = false}));
    n_kept = n_end_tokens_;
  }
  if (end_token_ && (tokens.empty() || tokens.back() != *end_token_)) {
    tokens.push_back(*end_token_);
    n_kept = 1;
  }
  if (tokens.empty()) return invalid("input must not be empty");
  if (request.truncates && tokens.size() > context && n_kept < context) {
    const auto end = static_cast<std::ptrdiff_t>(tokens.size() - n_kept);
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(context - n_kept),
                 tokens.begin() + end);
  }
  return tokens;
}

void Pooler::add(const HiddenRows& rows) {
  for (std::size_t r = 0; r < rows.values.size() / rows.width; ++r) {
    const std::span<const float> row = rows.values.subspan(r * rows.width, rows.width);
    if (pooling_ == formats::Pooling::cls && rows.first + r > 0) return;
    const bool replaces = pooling_ == formats::Pooling::last;
    for (std::size_t i = 0; i < row.size(); ++i)
      sums_[i] = (replaces ? 0.0 : sums_[i]) + static_cast<double>(row[i]);
  }
}

// The mean's divisor cancels out.
std::vector<float> Pooler::vector(std::optional<std::uint32_t> dimensions) const {
  const std::span<const double> kept(sums_.data(), dimensions.value_or(sums_.size()));
  double squares = 0.0;
  for (const double x : kept) squares += x * x;
  const double length = std::sqrt(squares);
  std::vector<float> out;
  out.reserve(kept.size());
  for (const double x : kept) out.push_back(static_cast<float>(length > 0.0 ? x / length : 0.0));
  return out;
}

}  // namespace kvasir
