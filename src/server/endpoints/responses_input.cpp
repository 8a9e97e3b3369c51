#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/endpoints/call_names.h"
#include "server/endpoints/responses_request.h"

namespace kvasir::server {
namespace {

class InputReader {
 public:
  InputReader(BodyReader& in, json::Array conversation) : in_(in), out_(std::move(conversation)) {
    names_.add(out_);
  }

  json::Array read() {
    const json::Value* input = in_.find("input");
    const json::Array* items = input ? input->as_array() : nullptr;
    if (const std::string* text = input ? input->as_string() : nullptr)
      out_.push_back(json::Object{{"role", "user"}, {"content", *text}});
    else if (!items || (items->empty() && out_.empty()))
      fail("input must be a string or a non-empty list");
    for (std::size_t i = 0; items && in_.ok() && i < items->size(); ++i)
      read_item((*items)[i], "input[" + std::to_string(i) + "]");
    return with_both_reasoning_names(std::move(out_));
  }

 private:
  void fail(std::string message) { in_.fail(std::move(message), "input"); }

  void read_item(const json::Value& item, const std::string& at) {
    const std::string type = item.string_or("type", item.find("role") ? "message" : "");
    if (type == "message") return read_message(item, at);
    if (type == "function_call") return read_call(item, at);
    if (type == "function_call_output") return read_output(item, at);
    if (type == "reasoning") return read_reasoning(item, at);
    if (type.empty()) return fail(at + " must be an object with a type or a role");
    fail(at + ".type: '" + type + "' is not supported");
  }

  void read_message(const json::Value& item, const std::string& at) {
    const std::string role = item.string_or("role", "");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return fail(at + ".role: unknown role \"" + role + "\"");
    const std::optional<std::string> text = text_of(item.find("content"), at + ".content");
    if (!text) return;
    if (role != "assistant") {
      is_open_ = false;
      out_.push_back(json::Object{{"role", role}, {"content", *text}});
      return;
    }
    if (has_content_ || has_calls_) is_open_ = false;
    assistant()["content"] = *text;
    has_content_ = true;
  }

  void read_call(const json::Value& item, const std::string& at) {
    const std::string id = item.string_or("call_id", ""), name = item.string_or("name", "");
    const json::Value* arguments = item.find("arguments");
    if (id.empty()) return fail(at + ".call_id must be a non-empty string");
    if (name.empty()) return fail(at + ".name must be a non-empty string");
    if (!arguments || !arguments->as_string()) return fail(at + ".arguments must be of type str");
    names_.add(id, name);
    json::Value& calls = assistant()["tool_calls"];
    if (!calls.is_array()) calls = json::Array{};
    calls.as_array()->push_back(call_entry(id, name, *arguments));
    has_calls_ = true;
  }

  void read_output(const json::Value& item, const std::string& at) {
    const std::string id = item.string_or("call_id", "");
    if (id.empty()) return fail(at + ".call_id must be a non-empty string");
    std::optional<std::string> text = text_of(item.find("output"), at + ".output");
    if (!text) return;
    is_open_ = false;
    out_.push_back(names_.result_message(id, *std::move(text)));
  }

  // Its own text if it is there, else the summary. Encrypted reasoning is another server's.
  void read_reasoning(const json::Value& item, const std::string& at) {
    std::string text;
    for (const char* field : {"content", "summary"}) {
      const json::Value* parts = item.find(field);
      if (!parts || parts->is_null() || !text.empty()) continue;
      const auto part_text = text_of(parts, at + "." + field);
      if (!part_text) return;
      text = *part_text;
    }
    if (text.empty()) return;
    if (has_content_ || has_calls_ || has_reasoning_) is_open_ = false;
    assistant()["reasoning"] = text;
    has_reasoning_ = true;
  }

  // The message that the assistant's items go to.
  json::Object& assistant() {
    if (!is_open_) {
      out_.push_back(json::Object{{"role", "assistant"}, {"content", ""}});
      is_open_ = true;
      has_content_ = has_calls_ = has_reasoning_ = false;
    }
    return *out_.back().as_object();
  }

  // A string, or the texts of a list of parts.
  std::optional<std::string> text_of(const json::Value* content, const std::string& at) {
    if (content && content->as_string()) return *content->as_string();
    const json::Array* parts = content ? content->as_array() : nullptr;
    if (!parts) {
      fail(at + " must be a string or a list of parts");
      return std::nullopt;
    }
    std::string out;
    for (std::size_t i = 0; i < parts->size(); ++i) {
      const json::Value& part = (*parts)[i];
      const std::string type = part.string_or("type", "");
      const json::Value* text = part.find(type == "refusal" ? "refusal" : "text");
      if (type == "input_image") {
        fail("this model does not accept images");
        return std::nullopt;
      }
      if (!text || !text->as_string() || type == "input_file") {
        fail(at + "[" + std::to_string(i) + "]: only text parts are taken");
        return std::nullopt;
      }
      out += *text->as_string();
    }
    return out;
  }

  BodyReader& in_;
  json::Array out_;
  CallNames names_;
  bool is_open_ = false;  // the last message is the assistant's and takes more
  bool has_content_ = false, has_calls_ = false, has_reasoning_ = false;  // of that message
};

}  // namespace

json::Array read_response_input(BodyReader& in, json::Array conversation) {
  return InputReader(in, std::move(conversation)).read();
}

}  // namespace kvasir::server
