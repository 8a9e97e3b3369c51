// What is put around the ids of a text or of a pair (TXT-10): TemplateProcessing, BertProcessing,
// RobertaProcessing, as lists of fixed ids and places. Immutable after load.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "json/json.h"

namespace kvasir::text::tok {

class PostProcessor {
 public:
  static Result<PostProcessor> parse(const json::Value& spec);  // null: puts nothing around

  std::vector<TokenId> wrap(std::vector<TokenId> ids) const;
  std::vector<TokenId> wrap_pair(const std::vector<TokenId>& a,
                                 const std::vector<TokenId>& b) const;
  const std::vector<TokenId>& prefix() const noexcept { return prefix_; }  // before a single text
  const std::vector<TokenId>& suffix() const noexcept { return suffix_; }

  // Makes texts begin with bos / end with eos, or not (add_bos_token, add_eos_token).
  void set_bos(TokenId bos, bool is_added);
  void set_eos(TokenId eos, bool is_added);

 private:
  enum class Kind : std::uint8_t { token, text_a, text_b };
  struct Item {
    Kind kind = Kind::token;
    TokenId token = 0;
  };
  static Result<std::vector<Item>> parse_template(const json::Value& spec, std::string_view member);
  Status add_template(const json::Value& spec);
  Status add_bert(const json::Value& spec, bool doubles_separator);
  void wrap_single(const std::vector<Item>& items);

  // A chain of processors each wrap a single text: what stands before and after it adds up.
  std::vector<TokenId> prefix_, suffix_;
  std::vector<Item> pair_ = {{Kind::text_a, 0}, {Kind::text_b, 0}};
};

}  // namespace kvasir::text::tok
