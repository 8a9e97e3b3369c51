#include "text/eos.h"

#include <algorithm>
#include <string>

#include "text/tokenizer/vocab.h"

namespace kvasir::text {
namespace {

Status add_id(const json::Value& value, std::string_view place, std::vector<TokenId>& out) {
  const std::int64_t* id = value.as_int();
  if (id == nullptr || *id < 0 || *id > tok::kMaxTokenId) {
    return invalid(std::string(place) + ": eos_token_id must be a token id or a list of them");
  }
  out.push_back(static_cast<TokenId>(*id));
  return {};
}

Status add_member(const json::Value* file, std::string_view place, std::vector<TokenId>& out) {
  const json::Value* member = file == nullptr ? nullptr : file->find("eos_token_id");
  if (member == nullptr || member->is_null()) return {};
  if (!member->is_array()) return add_id(*member, place, out);
  for (const json::Value& id : *member->as_array()) KVASIR_TRY_DO(add_id(id, place, out));
  return {};
}

}  // namespace

Result<std::vector<TokenId>> eos_ids(const EosSources& sources) {
  std::vector<TokenId> out(sources.family_ids.begin(), sources.family_ids.end());
  if (sources.tokenizer_eos) out.push_back(*sources.tokenizer_eos);
  KVASIR_TRY_DO(add_member(sources.config, "config.json", out));
  const json::Value* text_config =
      sources.config == nullptr ? nullptr : sources.config->find("text_config");
  KVASIR_TRY_DO(add_member(text_config, "config.json: text_config", out));
  KVASIR_TRY_DO(add_member(sources.generation_config, "generation_config.json", out));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace kvasir::text
