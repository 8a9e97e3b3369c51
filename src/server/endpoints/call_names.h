// CallNames: which function a call id stands for, so that a tool's result can name it: some chat
// templates show the name only. A value; one thread.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "json/json.h"

namespace kvasir::server {

class CallNames {
 public:
  void add(std::string id, std::string name) { names_[std::move(id)] = std::move(name); }
  // Those of all tool_calls in a conversation.
  void add(const json::Array& messages) {
    for (const json::Value& message : messages) {
      const json::Value* calls = message.find("tool_calls");
      const json::Array* list = calls ? calls->as_array() : nullptr;
      for (std::size_t i = 0; list && i < list->size(); ++i) {
        const json::Value* function = (*list)[i].find("function");
        if (function) add((*list)[i].string_or("id", ""), function->string_or("name", ""));
      }
    }
  }

  // {"role": "tool", "tool_call_id", "name" if known, "content"}
  json::Object result_message(const std::string& id, std::string content) const {
    json::Object message{{"role", "tool"}, {"tool_call_id", id}};
    if (const auto found = names_.find(id); found != names_.end()) message["name"] = found->second;
    message["content"] = std::move(content);
    return message;
  }

 private:
  std::unordered_map<std::string, std::string> names_;
};

// An entry of an assistant message's tool_calls.
inline json::Object call_entry(std::string id, std::string name, json::Value arguments) {
  return {
      {"id", std::move(id)},
      {"type", "function"},
      {"function", json::Object{{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
}

}  // namespace kvasir::server
