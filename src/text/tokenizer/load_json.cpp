// tokenizer.json → Pipeline.
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/pipeline.h"

namespace kvasir::text::tok {
namespace {

const json::Value kNull;

const json::Value& member(const json::Value& root, std::string_view name) {
  const json::Value* value = root.find(name);
  return value == nullptr ? kNull : *value;
}

Status add_tokens(const json::Value& list, Pipeline& p) {
  if (list.is_null()) return {};
  if (!list.is_array()) return invalid("tokenizer: added_tokens is no list");
  TokenId next = p.next_added_id();
  for (const json::Value& entry : *list.as_array()) {
    AddedToken token;
    token.content = entry.string_or("content", "");
    if (token.content.empty()) continue;
    token.is_special = entry.bool_or("special", false);
    token.is_normalized = entry.bool_or("normalized", !token.is_special);
    token.strips_left = entry.bool_or("lstrip", false);
    token.strips_right = entry.bool_or("rstrip", false);
    token.is_single_word = entry.bool_or("single_word", false);
    if (p.added.find(token.content) != nullptr) continue;
    const auto known = p.vocab.find(token.content);
    token.id = known ? *known : next;
    next = std::max(next, token.id + 1);
    KVASIR_TRY_DO(p.add_token(std::move(token)));
  }
  return {};
}

void find_unk(const json::Value& model, Pipeline& p) {
  const json::Value* id = model.find("unk_id");
  if (id != nullptr && id->is_int() && *id->as_int() >= 0 && *id->as_int() <= kMaxTokenId) {
    p.unk = static_cast<TokenId>(*id->as_int());
  }
  const std::string unk_token = model.string_or("unk_token", "");
  if (!unk_token.empty()) p.unk = p.find(unk_token);
}

}  // namespace

Result<PipelinePtr> load_json(std::string_view tokenizer_json, const json::Value& config) {
  if (tokenizer_json.size() > kMaxFileBytes) return invalid("tokenizer.json of more than 256 MiB");
  auto root = json::parse(tokenizer_json, {.max_bytes = kMaxFileBytes, .max_depth = 64});
  if (!root) return invalid("tokenizer.json: " + root.error().what);
  if (!root->is_object()) return invalid("tokenizer.json: no object");
  auto p = std::make_shared<Pipeline>();
  const json::Value& model = member(*root, "model");
  KVASIR_TRY_DO(read_model_vocab(model, p->vocab));
  KVASIR_TRY(p->normalizers, parse_normalizers(member(*root, "normalizer")));
  KVASIR_TRY(p->pre_tokenizers, parse_pre_tokenizers(member(*root, "pre_tokenizer")));
  KVASIR_TRY_DO(add_tokens(member(*root, "added_tokens"), *p));
  KVASIR_TRY_DO(add_config_tokens(config, *p));
  hide_special_tokens(*p);
  KVASIR_TRY(p->model, parse_model(model, p->vocab));
  KVASIR_TRY(p->post, PostProcessor::parse(member(*root, "post_processor")));
  KVASIR_TRY(p->decoder, DecoderSpec::parse(member(*root, "decoder")));
  find_unk(model, *p);
  if (!p->post.prefix().empty())
    p->bos = p->post.prefix().front();  // until the configuration names it
  apply_config_rules(config, *p);
  p->finish_loading();
  return PipelinePtr(std::move(p));
}

}  // namespace kvasir::text::tok
