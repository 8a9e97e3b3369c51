// tokenizer_config.json (or special_tokens_map.json): what it says about special tokens and about
// wrapping texts.
#include <algorithm>
#include <array>

#include "text/tokenizer/pipeline.h"

namespace kvasir::text::tok {
namespace {

constexpr std::array<std::string_view, 7> kNames{"bos_token", "eos_token", "unk_token", "sep_token",
                                                 "pad_token", "cls_token", "mask_token"};

// "<s>" or {"content": "<s>", …}; empty: not given.
std::string content_of(const json::Value* value) {
  if (value == nullptr) return {};
  if (const std::string* text = value->as_string()) return *text;
  return value->string_or("content", "");
}

AddedToken read_flags(const json::Value& spec, std::string content) {
  AddedToken token;
  token.content = std::move(content);
  token.is_special = spec.bool_or("special", false);
  token.is_normalized = spec.bool_or("normalized", !token.is_special);
  token.strips_left = spec.bool_or("lstrip", false);
  token.strips_right = spec.bool_or("rstrip", false);
  token.is_single_word = spec.bool_or("single_word", false);
  return token;
}

// A token that the tokenizer has becomes special; one that it lacks has no id and is left out.
Status make_special(const std::string& content, Pipeline& p) {
  if (content.empty()) return {};
  if (const AddedToken* token = p.added.find(content)) {
    p.added.make_special(token->id);
    return {};
  }
  const auto id = p.vocab.find(content);
  if (!id) return {};
  return p.add_token({.content = content, .id = *id, .is_special = true});
}

Status add_missing_tokens(const json::Value& config, Pipeline& p) {
  const json::Value* entries = config.find("added_tokens_decoder");
  if (entries == nullptr || !entries->is_object()) return {};
  std::vector<std::pair<std::uint64_t, const json::Value*>> ordered;
  for (const auto& [key, entry] : *entries->as_object()) {
    const bool is_number =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) ordered.emplace_back(std::stoull(key), &entry);
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, entry] : ordered) {
    const std::string content = content_of(entry->find("content"));
    if (content.empty() || p.added.find(content) != nullptr) continue;
    AddedToken token = read_flags(*entry, content);
    const auto known = p.vocab.find(content);
    token.id = known ? *known : p.next_added_id();
    KVASIR_TRY_DO(p.add_token(std::move(token)));
  }
  return {};
}

}  // namespace

Status add_config_tokens(const json::Value& config, Pipeline& p) {
  KVASIR_TRY_DO(add_missing_tokens(config, p));
  for (const std::string_view name : kNames) {
    const std::string content = content_of(config.find(name));
    if (content.empty()) continue;
    p.named_special_tokens.emplace_back(name, content);
    KVASIR_TRY_DO(make_special(content, p));
  }
  for (const std::string_view list : {"additional_special_tokens", "extra_special_tokens"}) {
    const json::Value* entries = config.find(list);
    if (entries == nullptr) continue;
    if (entries->is_array()) {
      for (const json::Value& entry : *entries->as_array())
        KVASIR_TRY_DO(make_special(content_of(&entry), p));
    } else if (entries->is_object()) {  // name → token
      for (const auto& [name, entry] : *entries->as_object()) {
        const std::string content = content_of(&entry);
        if (!content.empty()) p.named_special_tokens.emplace_back(name, content);
        KVASIR_TRY_DO(make_special(content, p));
      }
    }
  }
  return {};
}

void apply_config_rules(const json::Value& config, Pipeline& p) {
  for (const auto& [name, content] : p.named_special_tokens) {
    const auto id = p.find(content);
    if (name == "bos_token") p.bos = id;
    if (name == "eos_token") p.eos = id;
    if (name == "unk_token") p.unk = id;
    if (name == "pad_token") p.pad = id;
  }
  const json::Value* add_bos = config.find("add_bos_token");
  const json::Value* add_eos = config.find("add_eos_token");
  if (add_bos != nullptr && add_bos->is_bool() && p.bos)
    p.post.set_bos(*p.bos, *add_bos->as_bool());
  if (add_eos != nullptr && add_eos->is_bool() && p.eos)
    p.post.set_eos(*p.eos, *add_eos->as_bool());
  if (config.bool_or("clean_up_tokenization_spaces", false)) p.decoder.add_cleanup();
}

}  // namespace kvasir::text::tok
