#include "text/tokenizer/post_processor.h"

#include <algorithm>

#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/vocab.h"

namespace kvasir::text::tok {
namespace {

Result<TokenId> read_id(const json::Value& value) {
  const std::int64_t* id = value.as_int();
  if (id == nullptr || *id < 0 || *id > kMaxTokenId)
    return invalid("tokenizer: post_processor: no token id");
  return static_cast<TokenId>(*id);
}

// ["[SEP]", 102]
Result<TokenId> read_named_id(const json::Value& spec, std::string_view member) {
  const json::Value* pair = spec.find(member);
  const json::Array* items = pair == nullptr ? nullptr : pair->as_array();
  if (items == nullptr || items->size() != 2) {
    return invalid("tokenizer: post_processor: " + std::string(member) + " is not [token, id]");
  }
  return read_id((*items)[1]);
}

}  // namespace

Result<std::vector<PostProcessor::Item>> PostProcessor::parse_template(const json::Value& spec,
                                                                       std::string_view member) {
  std::vector<Item> out;
  const json::Value* items = spec.find(member);
  const json::Value* specials = spec.find("special_tokens");
  if (items == nullptr || !items->is_array())
    return invalid("tokenizer: TemplateProcessing without " + std::string(member));
  for (const json::Value& item : *items->as_array()) {
    if (const json::Value* text = item.find("Sequence")) {
      out.push_back({text->string_or("id", "A") == "B" ? Kind::text_b : Kind::text_a, 0});
      continue;
    }
    const json::Value* token = item.find("SpecialToken");
    const std::string name = token == nullptr ? "" : token->string_or("id", "");
    const json::Value* entry = specials == nullptr ? nullptr : specials->find(name);
    const json::Value* ids = entry == nullptr ? nullptr : entry->find("ids");
    if (ids == nullptr || !ids->is_array()) {
      return invalid("tokenizer: TemplateProcessing names the unknown token \"" + name + "\"");
    }
    for (const json::Value& id : *ids->as_array()) {
      KVASIR_TRY(const TokenId one, read_id(id));
      out.push_back({Kind::token, one});
    }
  }
  return out;
}

void PostProcessor::wrap_single(const std::vector<Item>& items) {
  std::vector<TokenId> before, after;
  bool is_before = true;
  for (const Item& item : items) {
    if (item.kind == Kind::token) {
      (is_before ? before : after).push_back(item.token);
    } else {
      is_before = false;
    }
  }
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
}

Status PostProcessor::add_template(const json::Value& spec) {
  KVASIR_TRY(const std::vector<Item> single, parse_template(spec, "single"));
  const auto is_text = [](const Item& item) { return item.kind == Kind::text_a; };
  if (std::count_if(single.begin(), single.end(), is_text) != 1) {
    return unsupported("tokenizer: a TemplateProcessing that does not name its text exactly once");
  }
  wrap_single(single);
  const json::Value* pair = spec.find("pair");
  if (pair == nullptr || !pair->is_array()) return {};
  KVASIR_TRY(pair_, parse_template(spec, "pair"));
  return {};
}

Status PostProcessor::add_bert(const json::Value& spec, bool doubles_separator) {
  KVASIR_TRY(const TokenId cls, read_named_id(spec, "cls"));
  KVASIR_TRY(const TokenId sep, read_named_id(spec, "sep"));
  prefix_.insert(prefix_.begin(), cls);
  suffix_.push_back(sep);
  pair_ = {{Kind::token, cls}, {Kind::text_a, 0}, {Kind::token, sep}};
  if (doubles_separator) pair_.push_back({Kind::token, sep});
  pair_.push_back({Kind::text_b, 0});
  pair_.push_back({Kind::token, sep});
  return {};
}

Result<PostProcessor> PostProcessor::parse(const json::Value& spec) {
  PostProcessor out;
  KVASIR_TRY_DO(for_each_step(
      spec, "processors", [&](const json::Value& step, const std::string& type) -> Status {
        if (type == "ByteLevel") return {};  // concerns offsets only
        if (type == "TemplateProcessing") return out.add_template(step);
        if (type == "BertProcessing") return out.add_bert(step, false);
        if (type == "RobertaProcessing") return out.add_bert(step, true);
        return unsupported("tokenizer: unknown post_processor type \"" + type + "\"");
      }));
  return out;
}

std::vector<TokenId> PostProcessor::wrap(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), prefix_.begin(), prefix_.end());
  ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

std::vector<TokenId> PostProcessor::wrap_pair(const std::vector<TokenId>& a,
                                              const std::vector<TokenId>& b) const {
  std::vector<TokenId> out;
  for (const Item& item : pair_) {
    if (item.kind == Kind::token) out.push_back(item.token);
    if (item.kind == Kind::text_a) out.insert(out.end(), a.begin(), a.end());
    if (item.kind == Kind::text_b) out.insert(out.end(), b.begin(), b.end());
  }
  return out;
}

void PostProcessor::set_bos(TokenId bos, bool is_added) {
  const bool is_there = !prefix_.empty() && prefix_.front() == bos;
  if (is_there == is_added) return;
  const bool is_in_pair =
      !pair_.empty() && pair_.front().kind == Kind::token && pair_.front().token == bos;
  if (is_added) {
    prefix_.insert(prefix_.begin(), bos);
    if (!is_in_pair) pair_.insert(pair_.begin(), {Kind::token, bos});
  } else {
    prefix_.erase(prefix_.begin());
    if (is_in_pair) pair_.erase(pair_.begin());
  }
}

void PostProcessor::set_eos(TokenId eos, bool is_added) {
  const bool is_there = !suffix_.empty() && suffix_.back() == eos;
  if (is_there == is_added) return;
  const bool is_in_pair =
      !pair_.empty() && pair_.back().kind == Kind::token && pair_.back().token == eos;
  if (is_added) {
    suffix_.push_back(eos);
    if (!is_in_pair) pair_.push_back({Kind::token, eos});
  } else {
    suffix_.pop_back();
    if (is_in_pair) pair_.pop_back();
  }
}

}  // namespace kvasir::text::tok
