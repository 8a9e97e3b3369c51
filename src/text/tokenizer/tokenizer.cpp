#include "text/tokenizer.h"

#include "base/file.h"
#include "base/utf8.h"
#include "text/tokenizer/pipeline.h"

namespace kvasir::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 32u << 20;

// Malformed UTF-8 → U+FFFD, one a maximal subpart; origins follow.
void repair(tok::Normalized& n) {
  if (is_valid_utf8(n.text)) return;
  tok::Rewriter rw(n);
  for (std::size_t at = 0; at < rw.in().size();) {
    const DecodedChar c = decode_utf8(rw.in().substr(at));
    if (c.valid) {
      rw.keep(at, at + c.n_bytes);
    } else {
      rw.emit("\xEF\xBF\xBD", at, at + c.n_bytes);
    }
    at += c.n_bytes;
  }
  rw.finish();
}

Result<tok::Normalized> join(std::span<const TextSpan> spans) {
  tok::Normalized out;
  std::size_t n_bytes = 0;
  bool is_mixed = false;
  for (const TextSpan& span : spans) {
    n_bytes += span.text.size();
    is_mixed = is_mixed || span.parse_special != spans[0].parse_special;
    if (n_bytes > tok::kMaxInputBytes) return invalid("text of more than 16 MiB");
  }
  out.all_allowed = !spans.empty() && spans[0].parse_special;
  out.text.reserve(n_bytes);
  for (const TextSpan& span : spans) {
    out.text += span.text;
    if (is_mixed)
      out.allowed.insert(out.allowed.end(), span.text.size(), span.parse_special ? 1 : 0);
  }
  repair(out);
  return out;
}

Result<json::Value> read_json(const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec)) return json::Value();
  KVASIR_TRY(const std::string text, read_file(path, kMaxConfigBytes));
  auto value = json::parse(text);
  if (!value) return invalid(path.string() + ": " + value.error().what);
  return *std::move(value);
}

Result<json::Value> parse_config(std::string_view text) {
  if (text.empty()) return json::Value();
  auto value = json::parse(text);
  if (!value) return invalid("tokenizer_config.json: " + value.error().what);
  return *std::move(value);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_folder(const fs::path& folder, const FolderOptions& options) {
  json::Value config;
  if (options.uses_config) {
    KVASIR_TRY(config, read_json(folder / "tokenizer_config.json"));
    if (config.is_null()) {
      KVASIR_TRY(config, read_json(folder / "special_tokens_map.json"));
    }
  }
  std::error_code ec;
  for (const char* name : {"tokenizer.json", "tokenizer.json.xz", "tokenizer.model"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path, ec)) continue;
    KVASIR_TRY(const std::string bytes, read_file(path, tok::kMaxFileBytes));
    const bool is_json = std::string_view(name) != "tokenizer.model";
    auto pipeline =
        is_json ? tok::load_json(bytes, config) : tok::load_sentencepiece(bytes, config);
    if (!pipeline)
      return Error{pipeline.error().code, path.string() + ": " + pipeline.error().what};
    return Tokenizer(*std::move(pipeline));
  }
  return not_found(folder.string() + ": neither tokenizer.json nor tokenizer.model");
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                       std::string_view tokenizer_config) {
  KVASIR_TRY(const json::Value config, parse_config(tokenizer_config));
  KVASIR_TRY(tok::PipelinePtr pipeline, tok::load_json(tokenizer_json, config));
  return Tokenizer(std::move(pipeline));
}

Result<Tokenizer> Tokenizer::from_sentencepiece(std::string_view model_bytes,
                                                std::string_view tokenizer_config) {
  KVASIR_TRY(const json::Value config, parse_config(tokenizer_config));
  KVASIR_TRY(tok::PipelinePtr pipeline, tok::load_sentencepiece(model_bytes, config));
  return Tokenizer(std::move(pipeline));
}

Result<Tokenizer> Tokenizer::from_gguf(const GgufVocab& vocab) {
  KVASIR_TRY(tok::PipelinePtr pipeline, tok::load_gguf(vocab));
  return Tokenizer(std::move(pipeline));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  const TextSpan span{text, options.parse_special};
  return encode({&span, 1}, options.add_special);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const TextSpan> spans,
                                               bool add_special) const {
  KVASIR_TRY(tok::Normalized text, join(spans));
  KVASIR_TRY(std::vector<TokenId> ids, pipeline_->encode(std::move(text)));
  return add_special ? pipeline_->post.wrap(std::move(ids)) : std::move(ids);
}

Result<std::vector<TokenId>> Tokenizer::encode_chat(std::span<const TextSpan> spans) const {
  KVASIR_TRY(std::vector<TokenId> ids, encode(spans, false));
  const std::vector<TokenId>& prefix = pipeline_->post.prefix();
  const bool is_doubled = adds_bos() && !ids.empty() && ids.front() == *bos();
  ids.insert(ids.begin(), prefix.begin(), prefix.end() - (is_doubled ? 1 : 0));
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode_pair(std::string_view a, std::string_view b) const {
  const EncodeOptions plain{.add_special = false};
  KVASIR_TRY(const std::vector<TokenId> ids_a, encode(a, plain));
  KVASIR_TRY(const std::vector<TokenId> ids_b, encode(b, plain));
  return pipeline_->post.wrap_pair(ids_a, ids_b);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  tok::DecodeChain chain = pipeline_->decoder.start({.is_start = options.is_start});
  for (const TokenId id : ids) {
    if (has_token(id) && !(options.skip_special && is_special(id))) chain.push(piece(id));
  }
  chain.finish();
  return chain.take();
}

std::size_t Tokenizer::vocab_size() const noexcept { return pipeline_->end; }

bool Tokenizer::has_token(TokenId id) const noexcept {
  return pipeline_->vocab.has(id) || pipeline_->added.find(id) != nullptr;
}

std::string_view Tokenizer::piece(TokenId id) const noexcept { return pipeline_->piece(id); }

std::string Tokenizer::token_bytes(TokenId id) const {
  if (!has_token(id)) return {};
  tok::DecodeChain chain = pipeline_->decoder.start({.is_start = false, .is_raw = true});
  chain.push(piece(id));
  chain.finish();
  return chain.take();
}

std::optional<TokenId> Tokenizer::find(std::string_view piece) const noexcept {
  return pipeline_->find(piece);
}
bool Tokenizer::is_special(TokenId id) const noexcept { return pipeline_->is_special(id); }
const std::vector<TokenId>& Tokenizer::special_ids() const noexcept {
  return pipeline_->special_ids;
}
std::optional<TokenId> Tokenizer::bos() const noexcept { return pipeline_->bos; }
std::optional<TokenId> Tokenizer::eos() const noexcept { return pipeline_->eos; }
std::optional<TokenId> Tokenizer::unk() const noexcept { return pipeline_->unk; }
std::optional<TokenId> Tokenizer::pad() const noexcept { return pipeline_->pad; }

bool Tokenizer::adds_bos() const noexcept {
  const auto& prefix = pipeline_->post.prefix();
  return bos() && !prefix.empty() && prefix.front() == *bos();
}

bool Tokenizer::adds_eos() const noexcept {
  const auto& suffix = pipeline_->post.suffix();
  return eos() && !suffix.empty() && suffix.back() == *eos();
}

const std::vector<std::pair<std::string, std::string>>& Tokenizer::named_special_tokens()
    const noexcept {
  return pipeline_->named_special_tokens;
}

}  // namespace kvasir::text
