#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "server/endpoints/call_names.h"
#include "server/endpoints/ollama_request.h"

namespace kvasir::server {
namespace {

class OllamaMessages {
 public:
  explicit OllamaMessages(BodyReader& in) : in_(in) {}

  json::Array read(const json::Array& messages) {
    for (std::size_t i = 0; in_.ok() && i < messages.size(); ++i)
      read_message(messages[i], "messages[" + std::to_string(i) + "]");
    return with_both_reasoning_names(std::move(out_));
  }

 private:
  void fail(std::string message) { in_.fail(std::move(message), "messages"); }

  void read_message(const json::Value& message, const std::string& at) {
    const std::string role = message.string_or("role", "");
    if (role.empty()) return fail(at + ".role must be a non-empty string");
    const json::Value* images = message.find("images");
    if (images && images->as_array() && !images->as_array()->empty())
      return fail("this model does not accept images");
    const json::Value* content = message.find("content");
    if (content && !content->is_null() && !content->is_string())
      return fail(at + ".content must be of type str");
    const std::string text = message.string_or("content", "");
    if (role == "tool") return read_result(message, text);
    json::Object out{{"role", role}, {"content", text}};
    const std::string thinking = message.string_or("thinking", "");
    if (!thinking.empty()) out["reasoning"] = thinking;
    if (const json::Value* calls = message.find("tool_calls"); calls && !calls->is_null()) {
      json::Array list = read_calls(*calls, at + ".tool_calls");
      if (!list.empty()) out["tool_calls"] = std::move(list);
    }
    out_.push_back(std::move(out));
  }

  json::Array read_calls(const json::Value& calls, const std::string& at) {
    json::Array out;
    const json::Array* list = calls.as_array();
    if (!list) fail(at + " must be of type list");
    for (std::size_t i = 0; list && in_.ok() && i < list->size(); ++i) {
      const std::string here = at + "[" + std::to_string(i) + "]";
      const json::Value* function = (*list)[i].find("function");
      const json::Value* arguments = function ? function->find("arguments") : nullptr;
      const std::string name = function ? function->string_or("name", "") : "";
      if (name.empty()) fail(here + ".function.name must be a non-empty string");
      if (arguments && !arguments->is_null() && !arguments->is_object())
        fail(here + ".function.arguments must be of type dict");
      const bool has_arguments = arguments && arguments->is_object();
      std::string id = (*list)[i].string_or("id", "");
      if (id.empty()) id = next_id();
      names_.add(id, name);
      open_.push_back(id);
      open_by_name_[name].push_back(id);
      out.push_back(call_entry(id, name, has_arguments ? *arguments : json::Value(json::Object{})));
    }
    return out;
  }

  void read_result(const json::Value& message, const std::string& text) {
    const std::string name = message.string_or("tool_name", message.string_or("name", ""));
    std::string id = message.string_or("tool_call_id", "");
    if (id.empty())
      id = take_open(name);
    else
      answered_.insert(id);
    json::Object out = names_.result_message(id, text);
    if (!name.empty()) out["name"] = name;
    out_.push_back(std::move(out));
  }

  // The oldest call without a result, of that name if there is one; else a new id.
  std::string take_open(const std::string& name) {
    std::deque<std::string>& open = name.empty() ? open_ : open_by_name_[name];
    while (!open.empty()) {
      const std::string id = std::move(open.front());
      open.pop_front();
      if (answered_.insert(id).second) return id;
    }
    return next_id();
  }

  // Nine letters and digits, as the strictest templates want them.
  std::string next_id() {
    const std::string number = std::to_string(n_ids_++);
    return "call" + std::string(number.size() < 5 ? 5 - number.size() : 0, '0') + number;
  }

  BodyReader& in_;
  json::Array out_;
  CallNames names_;
  // Ids of calls, oldest first; those in answered_ have their result.
  std::deque<std::string> open_;
  std::unordered_map<std::string, std::deque<std::string>> open_by_name_;
  std::unordered_set<std::string> answered_;
  std::size_t n_ids_ = 0;
};

}  // namespace

json::Array read_ollama_messages(BodyReader& in, const json::Array& messages) {
  return OllamaMessages(in).read(messages);
}

}  // namespace kvasir::server
