#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/endpoints/anthropic_request.h"
#include "server/endpoints/call_names.h"

namespace kvasir::server {
namespace {

// A client's tag that changes with every request: it would end the common prefix at once (C34).
constexpr std::string_view kBillingTag = "x-anthropic-billing-header:";

std::string item_of(const std::string& at, std::size_t i) {
  return at + "[" + std::to_string(i) + "]";
}

class ConversationReader {
 public:
  ConversationReader(BodyReader& in, const Signer& signer) : in_(in), signer_(signer) {}

  json::Array read() {
    read_system();
    const json::Value* field = in_.find("messages");
    const json::Array* list = field ? field->as_array() : nullptr;
    if (!list || list->empty()) fail("messages must be a non-empty array");
    for (std::size_t i = 0; in_.ok() && i < list->size(); ++i)
      read_message((*list)[i], item_of("messages", i));
    return std::move(out_);
  }

 private:
  // What one message has said since the last flush.
  struct Turn {
    std::string role, text, reasoning;
    json::Array calls;
    bool is_flushed = false;
    bool is_empty() const { return text.empty() && reasoning.empty() && calls.empty(); }
  };

  void fail(std::string message) { in_.fail(std::move(message), "messages"); }

  void read_system() {
    const json::Value* system = in_.find("system");
    if (!system) return;
    std::string text;
    if (const std::string* whole = system->as_string()) {
      text = *whole;
    } else if (const json::Array* blocks = system->as_array()) {
      for (std::size_t i = 0; i < blocks->size(); ++i) {
        const std::string* part = text_of((*blocks)[i]);
        if (!part) return in_.fail(item_of("system", i) + " must be a text block", "system");
        if (i == 0 && part->starts_with(kBillingTag)) continue;
        text += *part;
      }
    } else {
      return in_.fail("system must be a string or a list of text blocks", "system");
    }
    if (!text.empty()) out_.push_back(json::Object{{"role", "system"}, {"content", text}});
  }

  static const std::string* text_of(const json::Value& block) {
    if (block.string_or("type", "") != "text") return nullptr;
    const json::Value* text = block.find("text");
    return text ? text->as_string() : nullptr;
  }

  void read_message(const json::Value& message, const std::string& at) {
    Turn turn;
    turn.role = message.string_or("role", "");
    if (turn.role != "user" && turn.role != "assistant" && turn.role != "system")
      return fail(at + ".role must be user or assistant");
    const json::Value* content = message.find("content");
    const json::Array* blocks = content ? content->as_array() : nullptr;
    if (const std::string* text = content ? content->as_string() : nullptr)
      turn.text = *text;
    else if (!blocks)
      return fail(at + ".content must be a string or a list of blocks");
    for (std::size_t i = 0; blocks && in_.ok() && i < blocks->size(); ++i)
      read_block((*blocks)[i], item_of(at + ".content", i), turn);
    if (!turn.is_empty() || !turn.is_flushed) flush(turn);
  }

  void flush(Turn& turn) {
    json::Object message{{"role", turn.role}, {"content", std::exchange(turn.text, {})}};
    if (!turn.reasoning.empty()) message["reasoning"] = std::exchange(turn.reasoning, {});
    if (!turn.calls.empty()) message["tool_calls"] = std::exchange(turn.calls, {});
    out_.push_back(std::move(message));
    turn.is_flushed = true;
  }

  void read_block(const json::Value& block, const std::string& at, Turn& turn) {
    const std::string type = block.string_or("type", "");
    const bool is_assistant = turn.role == "assistant";
    if (type == "text") {
      const std::string* text = text_of(block);
      if (!text) return fail(at + ".text must be of type str");
      turn.text += *text;
    } else if (type == "image") {
      fail("this model does not accept images");
    } else if (type == "document") {
      read_document(block, at, turn);
    } else if (type == "thinking" && is_assistant) {
      const std::string thinking = block.string_or("thinking", "");
      if (signer_.verify(thinking, block.string_or("signature", ""))) turn.reasoning += thinking;
    } else if (type == "redacted_thinking" && is_assistant) {
      return;  // encrypted for another server
    } else if (type == "tool_use" && is_assistant) {
      read_call(block, at, turn);
    } else if (type == "tool_result" && turn.role == "user") {
      read_result(block, at, turn);
    } else if (type.empty()) {
      fail(at + ".type must be a non-empty string");
    } else {
      fail(at + ".type: '" + type + "' is not taken in a message of the " + turn.role);
    }
  }

  void read_document(const json::Value& block, const std::string& at, Turn& turn) {
    const json::Value* source = block.find("source");
    const bool is_text = source && source->string_or("type", "") == "text";
    const json::Value* data = is_text ? source->find("data") : nullptr;
    if (!data || !data->as_string()) return fail(at + ".source: only text documents are taken");
    turn.text += *data->as_string();
  }

  void read_call(const json::Value& block, const std::string& at, Turn& turn) {
    const std::string id = block.string_or("id", ""), name = block.string_or("name", "");
    const json::Value* input = block.find("input");
    if (id.empty()) return fail(at + ".id must be a non-empty string");
    if (name.empty()) return fail(at + ".name must be a non-empty string");
    if (!input || !input->is_object()) return fail(at + ".input must be of type dict");
    names_.add(id, name);
    turn.calls.push_back(call_entry(id, name, *input));
  }

  // A message of its own. What the turn said before goes first.
  void read_result(const json::Value& block, const std::string& at, Turn& turn) {
    const std::string id = block.string_or("tool_use_id", "");
    if (id.empty()) return fail(at + ".tool_use_id must be a non-empty string");
    const json::Value* content = block.find("content");
    std::string text;
    if (const json::Array* parts = content ? content->as_array() : nullptr) {
      for (std::size_t i = 0; i < parts->size(); ++i) {
        if ((*parts)[i].string_or("type", "") == "image")
          return fail("this model does not accept images");
        const std::string* part = text_of((*parts)[i]);
        if (!part) return fail(item_of(at + ".content", i) + " must be a text block");
        text += *part;
      }
    } else if (content && !content->is_null()) {
      if (!content->as_string()) return fail(at + ".content must be a string or a list of blocks");
      text = *content->as_string();
    }
    if (!turn.is_empty()) flush(turn);
    out_.push_back(names_.result_message(id, std::move(text)));
    turn.is_flushed = true;
  }

  BodyReader& in_;
  const Signer& signer_;
  CallNames names_;
  json::Array out_;
};

}  // namespace

json::Array read_anthropic_messages(BodyReader& in, const Signer& signer) {
  return with_both_reasoning_names(ConversationReader(in, signer).read());
}

}  // namespace kvasir::server
