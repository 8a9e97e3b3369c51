#include "kvasir/verify/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/file.h"
#include "kvasir/tokenize.h"

namespace kvasir::verify {
namespace {

constexpr std::uint64_t kMaxText = 16 << 20;

// KL(p || q) in nats of the softmaxes of two rows of logits, in f64.
double divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(double{v} - top);
    return top + std::log(sum);
  };
  const double p_norm = log_sum(p), q_norm = log_sum(q);
  double out = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_norm;
    out += std::exp(log_p) * (log_p - (double{q[i]} - q_norm));
  }
  return std::max(out, 0.0);
}

std::ptrdiff_t top_of(std::span<const float> x) {
  return std::max_element(x.begin(), x.end()) - x.begin();
}

}  // namespace

void Tally::add(std::span<const float> p, std::span<const float> q, std::size_t n_positions) {
  const std::size_t vocab = p.size() / n_positions;
  for (std::size_t i = 0; i < n_positions; ++i) {
    const auto a = p.subspan(i * vocab, vocab), b = q.subspan(i * vocab, vocab);
    const double kl = divergence(a, b);
    ++n;
    n_same_top += top_of(a) == top_of(b) ? 1 : 0;
    kl_sum += kl;
    kl_max = std::max(kl_max, kl);
  }
}

std::string Tally::columns() const {
  char line[128];
  const double count = static_cast<double>(n);
  std::snprintf(line, sizeof(line), "%.2e | %.2e | %.2f %% | %llu", kl_sum / count, kl_max,
                100.0 * static_cast<double>(n_same_top) / count,
                static_cast<unsigned long long>(n));
  return line;
}

Result<std::vector<TokenId>> read_tokens(const std::filesystem::path& model,
                                         std::span<const std::filesystem::path> texts,
                                         std::size_t most,
                                         std::size_t least) {
  std::string text;
  for (const std::filesystem::path& path : texts) {
    KVASIR_TRY(const std::string part, read_file(path, kMaxText));
    text += part;
  }
  KVASIR_TRY(const auto pieces, tokenize_with_model(model, text, false, false));
  std::vector<TokenId> tokens;
  for (const TokenPiece& piece : pieces) tokens.push_back(piece.id);
  if (tokens.size() > most) tokens.resize(most);
  if (tokens.size() < least) return invalid("the text is too short to say anything");
  return tokens;
}

}  // namespace kvasir::verify
