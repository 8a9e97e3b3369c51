#include "text/chat_messages.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace kvasir::text {

namespace {

// Inert letters: no template gives them a meaning, trims or escapes them.
constexpr std::string_view kNeedle = "Qkvsrprobe7";
constexpr std::string_view kContinuation = "Qkvsrfinal7";
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

json::Value message(std::string_view role, json::Value content) {
  json::Object m;
  m["role"] = json::Value(role);
  m["content"] = std::move(content);
  return m;
}

json::Value text_part(std::string_view text) {
  return json::Object{{"type", "text"}, {"text", text}};
}

json::Value call_message(json::Value content, json::Value arguments) {
  json::Value m = message("assistant", std::move(content));
  json::Object function{{"name", "probe"}, {"arguments", std::move(arguments)}};
  json::Object call{{"id", "call12345"}, {"type", "function"}, {"function", std::move(function)}};
  (*m.as_object())["tool_calls"] = json::Array{std::move(call)};
  return m;
}

json::Value tool_message(std::string_view content) {
  json::Value m = message("tool", content);
  (*m.as_object())["tool_call_id"] = "call12345";
  (*m.as_object())["name"] = "probe";
  return m;
}

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const json::Object& variables)
      : template_(chat_template), variables_(variables) {}

  TemplateTraits run() {
    TemplateTraits traits;
    traits.knows_developer = template_.source().find("developer") != std::string_view::npos;
    traits.content = content_form();
    form_ = traits.content;
    const json::Value object = json::Object{{"a", 1}};
    traits.needs_text_arguments = concatenates_arguments(object);
    const json::Value arguments =
        traits.needs_text_arguments ? json::Value(json::write(object)) : object;
    traits.needs_null_as_text =
        null_is_bad(with_call(nullptr, arguments), with_call("", arguments)) ||
        null_is_bad(with_answer(nullptr), with_answer(""));
    for (const std::string_view role : {"system", "developer", "tool", "function"}) {
      if (drops(role, arguments)) traits.dropped_roles.emplace_back(role);
    }
    // Named in the template, yet left out: such a message does better as the system's.
    traits.knows_developer = traits.knows_developer && !drops("developer", arguments);
    return traits;
  }

 private:
  Result<Rendered> try_render(json::Array messages) const {
    json::Object variables = variables_;
    if (variables.find("add_generation_prompt") == nullptr)
      variables["add_generation_prompt"] = true;
    if (form_ == ContentForm::parts) {
      for (json::Value& m : messages) {
        json::Value& content = (*m.as_object())["content"];
        if (const std::string* text = content.as_string()) content = json::Array{text_part(*text)};
      }
    }
    variables["messages"] = std::move(messages);
    return template_.render(variables);
  }
  bool render(json::Array messages) const { return try_render(std::move(messages)).has_value(); }

  json::Array with_call(json::Value content, json::Value arguments) const {
    return {message("user", "q"), call_message(std::move(content), std::move(arguments)),
            tool_message("r"), message("user", "q")};
  }
  json::Array with_answer(json::Value content) const {
    return {message("user", "q"), message("assistant", std::move(content)), message("user", "q")};
  }

  ContentForm content_form() const {
    const auto as_text = try_render({message("user", kNeedle)});
    const auto as_parts = try_render({message("user", json::Array{text_part(kNeedle)})});
    const auto shows = [](const Result<Rendered>& r) {
      // A printed list shows the needle too, next to its quotes.
      return r && count(r->text, kNeedle) > 0 && count(r->text, "'" + std::string(kNeedle)) == 0 &&
             count(r->text, "\"" + std::string(kNeedle)) == 0;
    };
    if (shows(as_text) && shows(as_parts)) return ContentForm::any;
    if (!shows(as_text) && shows(as_parts)) return ContentForm::parts;
    return ContentForm::text;
  }

  bool null_is_bad(json::Array with_null, json::Array with_text) const {
    const auto as_text = try_render(std::move(with_text));
    if (!as_text) return false;
    const auto as_null = try_render(std::move(with_null));
    return !as_null || count(as_null->text, "None") > count(as_text->text, "None");
  }

  // Calls render with arguments as text only; some templates look at them only if content is null.
  bool concatenates_arguments(const json::Value& object) const {
    const json::Value text = json::write(object);
    const bool fails_empty = !render(with_call("", object)) && render(with_call("", text));
    return fails_empty || (!render(with_call(nullptr, object)) && render(with_call(nullptr, text)));
  }

  // The template renders a conversation that has such a message, but nothing of the message.
  bool drops(std::string_view role, const json::Value& arguments) const {
    json::Array messages;
    if (role == "tool" || role == "function") {
      messages = {message("user", "q"), call_message("", arguments), tool_message(kNeedle)};
      (*messages.back().as_object())["role"] = json::Value(role);
    } else {
      messages = {message(role, kNeedle), message("user", "q")};
    }
    const auto rendered = try_render(std::move(messages));
    return rendered && count(rendered->text, kNeedle) == 0;
  }

  const ChatTemplate& template_;
  const json::Object& variables_;
  ContentForm form_ = ContentForm::any;
};

bool is_text_part(const json::Value& part) {
  const std::string type = part.string_or("type", "text");
  const json::Value* text = part.find("text");
  return (type == "text" || type == "input_text" || type == "output_text") && text != nullptr &&
         text->as_string() != nullptr;
}

class Preparer {
 public:
  Preparer(const ChatTemplate& chat_template, const TemplateTraits& traits)
      : template_(chat_template), traits_(traits) {}

  Status prepare(json::Value& m, const std::string& where) {
    if (m.as_object() == nullptr) return invalid(where + " must be an object");
    json::Object& object = *m.as_object();
    KVASIR_TRY_DO(role(object, where));
    if (object.find("content") == nullptr) object["content"] = nullptr;
    KVASIR_TRY_DO(content(object["content"], where));
    json::Value* calls = object.find("tool_calls");
    if (calls != nullptr && calls->as_array() != nullptr) {
      for (json::Value& call : *calls->as_array()) arguments(call);
    }
    return {};
  }

 private:
  bool names_role(const std::string& role) const {
    const std::string_view source = template_.source();
    return source.find("'" + role + "'") != source.npos ||
           source.find('"' + role + '"') != source.npos;
  }

  Status role(json::Object& m, const std::string& where) const {
    const json::Value* given = m.find("role");
    if (given == nullptr || given->as_string() == nullptr)
      return invalid(where + ".role must be a string");
    std::string role = *given->as_string();
    if (role == "developer" && !traits_.knows_developer) role = "system";
    const bool is_known =
        std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end() || names_role(role);
    if (!is_known) return invalid(where + ".role: unknown role \"" + role + "\"");
    const auto& dropped = traits_.dropped_roles;
    if (std::find(dropped.begin(), dropped.end(), role) != dropped.end()) {
      return invalid(where + ": the chat template leaves out messages of the role \"" + role +
                     "\"");
    }
    m["role"] = role;
    return {};
  }

  Status content(json::Value& content, const std::string& where) const {
    if (content.is_null()) {
      if (traits_.needs_null_as_text) content = "";
      return {};
    }
    if (const std::string* text = content.as_string()) {
      if (traits_.content == ContentForm::parts) content = json::Array{text_part(*text)};
      return {};
    }
    json::Array* parts = content.as_array();
    if (parts == nullptr) return invalid(where + ".content must be a string or a list of parts");
    const bool all_text = std::all_of(parts->begin(), parts->end(), is_text_part);
    if (!all_text) return invalid(why_not_text(*parts, where));
    if (traits_.content != ContentForm::text) {
      for (json::Value& part : *parts) (*part.as_object())["type"] = "text";
      // One rendering for one text, however it is given.
      if (traits_.content == ContentForm::any) content = joined(*parts);
      return {};
    }
    content = joined(*parts);
    return {};
  }

  // Of the first part that is no text.
  static std::string why_not_text(const json::Array& parts, const std::string& where) {
    const auto found = std::find_if_not(parts.begin(), parts.end(), is_text_part);
    const std::string at = where + ".content[" + std::to_string(found - parts.begin()) + "]";
    if (!found->is_object()) return at + " must be an object with a type";
    const std::string type = found->string_or("type", "text");
    if (type == "image" || type == "image_url" || type == "input_image")
      return "this model does not accept images";  // MOD-62
    if (type == "text" || type == "input_text" || type == "output_text")
      return at + ".text must be of type str";
    return at + ": this model does not accept parts of type \"" + type + "\"";
  }

  static json::Value joined(const json::Array& parts) {
    std::string text;
    for (const json::Value& part : parts) text += *part.find("text")->as_string();
    return text;
  }

  void arguments(json::Value& call) const {
    json::Object* function = call.as_object();
    if (function == nullptr) return;
    if (json::Value* nested = function->find("function")) function = nested->as_object();
    json::Value* given = function == nullptr ? nullptr : function->find("arguments");
    if (given == nullptr) return;
    const std::string* text = given->as_string();
    if (text != nullptr && !traits_.needs_text_arguments) {
      auto parsed = json::parse(*text);
      if (parsed && parsed->is_object()) *given = *std::move(parsed);
    } else if (text == nullptr && traits_.needs_text_arguments) {
      *given = json::write(*given);
    }
  }

  const ChatTemplate& template_;
  const TemplateTraits& traits_;
};

// The JSON-schema type that all values of an enum have; string when they differ.
std::string type_of_enum(const json::Array& values) {
  const auto all = [&values](auto test) {
    return !values.empty() && std::all_of(values.begin(), values.end(), test);
  };
  if (all([](const json::Value& v) { return v.is_int(); })) return "integer";
  if (all([](const json::Value& v) { return v.is_number(); })) return "number";
  if (all([](const json::Value& v) { return v.is_bool(); })) return "boolean";
  if (all([](const json::Value& v) { return v.is_array(); })) return "array";
  if (all([](const json::Value& v) { return v.is_object(); })) return "object";
  return "string";
}

void complete_schema(json::Value& node, int depth) {
  json::Object* schema = node.as_object();
  if (schema == nullptr || depth > 64) return;
  for (const std::string_view group : {"properties", "$defs", "definitions", "patternProperties"}) {
    json::Value* members = schema->find(group);
    if (members == nullptr || members->as_object() == nullptr) continue;
    for (auto& [name, member] : *members->as_object()) complete_schema(member, depth + 1);
  }
  for (const std::string_view key : {"items", "additionalProperties", "not"}) {
    if (json::Value* child = schema->find(key)) complete_schema(*child, depth + 1);
  }
  for (const std::string_view group : {"anyOf", "oneOf", "allOf", "prefixItems"}) {
    json::Value* children = schema->find(group);
    if (children == nullptr || children->as_array() == nullptr) continue;
    for (json::Value& child : *children->as_array()) complete_schema(child, depth + 1);
  }
  if (schema->find("type") != nullptr) return;
  const json::Value* values = schema->find("enum");
  const bool has_enum = values != nullptr && values->as_array() != nullptr;
  (*schema)["type"] = schema->find("properties") != nullptr ? std::string("object")
                      : schema->find("items") != nullptr    ? std::string("array")
                      : has_enum                            ? type_of_enum(*values->as_array())
                                                            : std::string("string");
}

// The final message with the marker behind its content; where the rendering of it ends is where to
// cut.
Status mark_final(json::Value& messages) {
  json::Array* list = messages.as_array();
  json::Object* final = list == nullptr || list->empty() ? nullptr : list->back().as_object();
  if (final == nullptr || list->back().string_or("role", "") != "assistant") {
    return invalid("continue_final_message: the last message must be the assistant's");
  }
  json::Value& content = (*final)["content"];
  if (const std::string* text = content.as_string()) {
    content = *text + std::string(kContinuation);
  } else if (content.as_array() != nullptr) {
    content.as_array()->push_back(text_part(kContinuation));
  } else {
    content = kContinuation;
  }
  return {};
}

Status cut_behind_final(Rendered& rendered) {
  const std::size_t at = rendered.text.rfind(kContinuation);
  if (at == std::string::npos) {
    return invalid(
        "continue_final_message: the chat template does not render the final message as it is");
  }
  rendered.text.resize(at);
  while (!rendered.spans.empty() && rendered.spans.back().begin >= at) rendered.spans.pop_back();
  if (!rendered.spans.empty()) rendered.spans.back().end = std::min(rendered.spans.back().end, at);
  return {};
}

}  // namespace

TemplateTraits probe_template(const ChatTemplate& chat_template, const json::Object& variables) {
  return Probe(chat_template, variables).run();
}

Result<json::Value> prepare_messages(const json::Value& messages,
                                     const ChatTemplate& chat_template,
                                     const TemplateTraits& traits) {
  if (messages.as_array() == nullptr) return invalid("messages must be a list");
  json::Array prepared = *messages.as_array();
  Preparer preparer(chat_template, traits);
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    KVASIR_TRY_DO(preparer.prepare(prepared[i], "messages[" + std::to_string(i) + "]"));
  }
  return json::Value(std::move(prepared));
}

json::Value prepare_tools(json::Value tools) {
  json::Array* list = tools.as_array();
  if (list == nullptr) return tools;
  for (json::Value& tool : *list) {
    json::Object* function = tool.as_object();
    if (function == nullptr) continue;
    if (json::Value* nested = function->find("function")) function = nested->as_object();
    json::Value* parameters = function == nullptr ? nullptr : function->find("parameters");
    if (parameters != nullptr) complete_schema(*parameters, 0);
  }
  return tools;
}

Result<Rendered> render_chat(const ChatTemplate& chat_template,
                             const TemplateTraits& traits,
                             ChatRendering request) {
  const json::Value* given = request.variables.find("messages");
  KVASIR_TRY(json::Value messages,
             prepare_messages(given != nullptr ? *given : json::Value(), chat_template, traits));
  if (request.continue_final_message) {
    KVASIR_TRY_DO(mark_final(messages));
    request.variables["add_generation_prompt"] = false;
  }
  request.variables["messages"] = std::move(messages);
  if (json::Value* tools = request.variables.find("tools"))
    *tools = prepare_tools(std::move(*tools));
  KVASIR_TRY(Rendered rendered, chat_template.render(request.variables, request.options));
  if (request.continue_final_message) KVASIR_TRY_DO(cut_behind_final(rendered));
  return rendered;
}

}  // namespace kvasir::text
