#include "text/template/interp.h"

#include <algorithm>

#include "text/template/iterators.h"
#include "text/template/loop.h"
#include "text/template/print.h"
#include "text/template/registry.h"

namespace kvasir::text::tmpl {

namespace {

constexpr std::string_view kKnownRoles[] = {"system",  "user",      "assistant",
                                            "tool",    "developer", "function",
                                            "ipython", "model",     "observation"};
constexpr std::string_view kKnownTypes[] = {"text",     "image", "image_url", "audio",  "video",
                                            "function", "tool",  "json",      "object", "string"};

template <std::size_t N>
bool is_one_of(const std::string_view (&words)[N], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// Templates build markers from these ('<|' + role + '|>'), so they stay template text.
bool is_marker_word(std::string_view key, const json::Value& value) {
  const std::string* word = value.as_string();
  if (word == nullptr) return false;
  return (key == "role" && is_one_of(kKnownRoles, *word)) ||
         (key == "type" && is_one_of(kKnownTypes, *word));
}

}  // namespace

Interp::Interp(const Program& program, const RenderOptions& options)
    : program_(program), options_(options), arena_(kMaxArenaBytes) {}

Value Interp::fail(std::string message) {
  if (!failed_) message_ = std::move(message);
  failed_ = true;
  return Value::error();
}

Value Interp::fail_limits() {
  if (!failed_) over_limits_ = true;
  return fail({});
}

Value Interp::fail_undefined(const Value& undefined) {
  return fail(undefined.string != nullptr ? std::string(undefined.text()) : "value is undefined");
}

std::string Interp::error_text() const {
  if (over_limits_) return "chat template exceeded its limits";
  return "chat template error: " + message_ + " (line " + std::to_string(line_) + ")";
}

bool Interp::tick(std::int64_t nodes) {
  nodes_left_ -= nodes;
  if (nodes_left_ < 0 || !arena_.within_limit()) fail_limits();
  return !failed_;
}

bool Interp::work(std::int64_t bytes) {
  work_left_ -= bytes;
  if (work_left_ < 0) fail_limits();
  return !failed_;
}

bool Interp::can_take(std::size_t bytes) {
  if (!arena_.can_take(bytes)) fail_limits();
  return !failed_;
}

Value Interp::str(std::string_view bytes, bool is_content) {
  if (!can_take(bytes.size())) return Value::error();
  return Value::of(make_str(arena_, bytes, is_content));
}

Value Interp::finish(const Builder& built) {
  if (built.overflowed()) return fail_limits();
  const std::size_t bytes = built.size() + built.spans().size() * sizeof(Span);
  if (!can_take(bytes) || !work(static_cast<std::int64_t>(bytes / 4))) return Value::error();
  return Value::of(make_str(arena_, built));
}

List* Interp::list() { return arena_.make<List>(&arena_); }
Dict* Interp::dict() { return arena_.make<Dict>(&arena_); }

Value Interp::undefined(std::string why) {
  Value v;
  v.kind = Kind::undefined;
  v.string = make_str(arena_, why);
  return v;
}

bool Interp::truth(const Value& v) {
  switch (v.kind) {
    case Kind::error:
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return v.boolean;
    case Kind::integer:
      return v.integer != 0;
    case Kind::floating:
      return v.floating != 0;
    case Kind::string:
      return !v.text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::dict_view:
    case Kind::range:
      return length_of(nullptr, v) != 0;
    case Kind::loop:
      return length_of(this, v) > 0;
    default:
      return true;
  }
}

Value Interp::from_input(const json::Value& v, bool is_content, bool is_known_word, int depth) {
  if (depth > kMaxNesting) return fail_limits();
  if (const bool* b = v.as_bool()) return Value::of(*b);
  if (const std::int64_t* i = v.as_int()) return Value::of(*i);
  if (v.is_number()) return Value::of(*v.as_number());
  if (const std::string* s = v.as_string()) {
    return Value::of(view_str(arena_, *s, is_content && !is_known_word));
  }
  if (const json::Array* array = v.as_array()) {
    List* items = list();
    items->is_input = true;
    items->items.reserve(array->size());
    for (const json::Value& item : *array) {
      items->items.push_back(from_input(item, is_content, false, depth + 1));
    }
    return Value::of(items);
  }
  if (const json::Object* object = v.as_object()) {
    Dict* members = dict();
    for (const auto& [key, value] : *object) {
      members->set(Value::of(view_str(arena_, key, is_content)),
                   from_input(value, is_content, is_marker_word(key, value), depth + 1));
    }
    members->is_input = true;
    return Value::of(members);
  }
  return Value::none();
}

// Only what the template mentions is converted.
void Interp::load_variables(const json::Object& variables) {
  for (const std::string& name : program_.names) {
    const json::Value* given = variables.find(name);
    if (given != nullptr) {
      const auto& content = options_.content_variables;
      const bool is_content = std::find(content.begin(), content.end(), name) != content.end();
      resolved_.push_back(from_input(*given, is_content, false, 0));
      continue;
    }
    Value v = Value::bare(Kind::missing);
    for (const FilterDef& global : global_functions()) {
      if (global.name != name) continue;
      v.kind = Kind::function;
      v.function = arena_.make<Function>(Function{global.apply, Value{}, global.name});
    }
    resolved_.push_back(v);
  }
}

bool Interp::run(const json::Object& variables) {
  load_variables(variables);
  if (failed_) return false;
  frame_ = take_activation(*program_.root, nullptr);
  enter(program_.root->scope);
  exec(program_.root->body);
  if (output_.overflowed()) fail_limits();
  return !failed_;
}

bool bind_args(Interp& in,
               std::string_view callee,
               const Args& args,
               std::initializer_list<std::string_view> names,
               std::size_t n_required,
               Value* out) {
  const auto name = [callee] { return std::string(callee) + "()"; };
  if (args.positional.size() > names.size()) {
    in.fail(name() + " takes at most " + std::to_string(names.size()) + " arguments (" +
            std::to_string(args.positional.size()) + " given)");
    return false;
  }
  std::copy(args.positional.begin(), args.positional.end(), out);
  std::uint32_t given = (1u << args.positional.size()) - 1;
  for (const Keyword& keyword : args.keywords) {
    const auto found = std::find(names.begin(), names.end(), keyword.name);
    const auto i = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || (given >> i & 1u) != 0) {
      in.fail(name() + " got " +
              (found == names.end() ? "an unexpected keyword argument '"
                                    : "multiple values for argument '") +
              std::string(keyword.name) + "'");
      return false;
    }
    given |= 1u << i;
    out[i] = keyword.value;
  }
  for (std::size_t i = 0; i < n_required; ++i) {
    if ((given >> i & 1u) != 0) continue;
    in.fail(name() + " missing required argument: '" + std::string(*(names.begin() + i)) + "'");
    return false;
  }
  return true;
}

}  // namespace kvasir::text::tmpl
