// Calls, macros, attributes and items.
#include <algorithm>

#include "text/template/interp.h"
#include "text/template/loop.h"
#include "text/template/print.h"
#include "text/template/registry.h"
#include "text/template/slices.h"

namespace kvasir::text::tmpl {

namespace {

// How messages name the type of an object: 'dict object', None.
std::string described(const Value& v) {
  if (v.is(Kind::none)) return "None";
  return std::string(type_name(v)) + " object";
}

Value no_attribute(Interp& in, const Value& object, std::string_view name) {
  return in.undefined("'" + described(object) + "' has no attribute '" + std::string(name) + "'");
}

Value no_element(Interp& in, const Value& object, const Value& key) {
  if (key.is_string()) return no_attribute(in, object, key.text());
  return in.undefined(described(object) + " has no element " + short_repr(key));
}

bool is_unsafe(const Value& object, std::string_view name) {
  return name.starts_with("__") && name.ends_with("__") && name.size() > 4 &&
         !object.is(Kind::name_space) &&
         (name == "__class__" || name == "__init__" || name == "__dict__" || name == "__doc__" ||
          name == "__len__" || name == "__getitem__" || name == "__iter__" || name == "__eq__" ||
          name == "__str__" || name == "__repr__" || name == "__globals__" || name == "__call__");
}

// An attribute in Python's sense; kind missing when there is none.
Value own_attribute(Interp& in, const Value& object, std::string_view name) {
  if (object.is(Kind::loop)) return loop_attribute(in, *object.loop, name);
  if (object.is(Kind::name_space)) {
    const Value* found = object.dict->find(name);
    return found != nullptr ? *found : Value::bare(Kind::missing);
  }
  if (object.is(Kind::tuple) && object.list->is_group && object.list->items.size() == 2) {
    if (name == "grouper") return object.list->items[0];
    if (name == "list") return object.list->items[1];
  }
  if (object.is(Kind::cycler) && name == "current") {
    return object.rotation->items->items[object.rotation->position];
  }
  if (object.is(Kind::macro) && name == "name") return in.str(object.macro->def->name);
  if (is_unsafe(object, name) || changes_input(object, name)) {
    return in.undefined("access to attribute '" + std::string(name) + "' of '" +
                        std::string(type_name(object)) + "' object is unsafe.");
  }
  const Native method = find_method(object, name);
  if (method == nullptr) return Value::bare(Kind::missing);
  Value v;
  v.kind = Kind::function;
  v.function = in.arena().make<Function>(Function{method, object, name});
  return v;
}

// object[key] in Python's sense; kind missing when it raises.
Value own_item(Interp& in, const Value& object, const Value& key) {
  switch (object.kind) {
    case Kind::dict: {
      const Value* found = hashable(key) ? object.dict->find(key) : nullptr;
      return found != nullptr ? *found : Value::bare(Kind::missing);
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::string:
      return key.is_int() ? item_at(in, object, key.as_int()) : Value::bare(Kind::missing);
    default:
      return Value::bare(Kind::missing);
  }
}

}  // namespace

Value Interp::get_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::undefined)) return fail_undefined(object);
  const Value attribute = own_attribute(*this, object, name);
  if (!attribute.is(Kind::missing)) return attribute;
  if (object.is(Kind::dict)) {
    if (const Value* found = object.dict->find(name)) return *found;
  }
  return no_attribute(*this, object, name);
}

Value Interp::get_item(const Value& object, const Value& key) {
  if (object.is(Kind::undefined)) return fail_undefined(object);
  const Value item = own_item(*this, object, key);
  if (!item.is(Kind::missing)) return item;
  if (key.is_string()) {
    const Value attribute = own_attribute(*this, object, key.text());
    if (!attribute.is(Kind::missing)) return attribute;
  }
  return no_element(*this, object, key);
}

Value Interp::call(const Value& callee, const Args& args) {
  switch (callee.kind) {
    case Kind::function:
      return callee.function->call(*this, callee.function->self, args);
    case Kind::macro:
      return call_macro(*callee.macro, args);
    case Kind::undefined:
      return fail_undefined(callee);
    case Kind::joiner: {
      Rotation& joiner = *callee.rotation;
      if (std::exchange(joiner.position, 1) == 0) return str("");
      return joiner.items->items[0];
    }
    case Kind::loop:
      return fail("The loop must have the 'recursive' marker to be called recursively.");
    case Kind::error:
      return callee;
    default:
      return fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

Value Interp::make_macro(const FunctionDef& def) {
  for (Activation* frame = frame_; frame != nullptr; frame = frame->outer)
    frame->is_captured = true;
  Value v;
  v.kind = Kind::macro;
  v.macro = arena_.make<MacroValue>(MacroValue{&def, frame_});
  return v;
}

Activation* Interp::take_activation(const FunctionDef& def, Activation* outer) {
  std::vector<Activation*>& spare = spare_[&def];
  Activation* frame = nullptr;
  if (spare.empty()) {
    frame = arena_.make<Activation>();
    const auto n = static_cast<std::size_t>(def.n_slots);
    frame->slots = static_cast<Value*>(
        arena_.allocate(std::max<std::size_t>(n, 1) * sizeof(Value), alignof(Value)));
  } else {
    frame = spare.back();
    spare.pop_back();
  }
  frame->outer = outer;
  std::uninitialized_fill_n(frame->slots, static_cast<std::size_t>(def.n_slots),
                            Value::bare(Kind::missing));
  return frame;
}

Value Interp::call_macro(const MacroValue& macro, const Args& args) {
  if (++nesting_ > kMaxNesting) return fail_limits();
  const std::uint32_t line = line_;
  Activation* frame = take_activation(*macro.def, macro.outer);
  Activation* caller = std::exchange(frame_, frame);
  Value text;
  Flow flow = Flow::next;
  enter(macro.def->scope);
  const bool ok = bind_macro(macro, args, *frame) && capture(macro.def->body, text, flow);
  frame_ = caller;
  --nesting_;
  if (!ok || failed_) return Value::error();
  if (!frame->is_captured) spare_[macro.def].push_back(frame);
  line_ = line;
  return text;
}

// Fills the parameters' slots: positions, keywords, defaults (which see the parameters before
// them), and the special names caller, kwargs and varargs when the body uses them.
bool Interp::bind_macro(const MacroValue& macro, const Args& args, Activation& frame) {
  const FunctionDef& def = *macro.def;
  const std::size_t n = def.parameters.size();
  const std::size_t n_positional = std::min(args.positional.size(), n);
  const auto slot_of = [&](std::size_t i) -> Value& { return frame.slots[def.parameter_slots[i]]; };
  for (std::size_t i = 0; i < n_positional; ++i) slot_of(i) = args.positional[i];
  Dict* rest = def.kwargs_slot >= 0 ? dict() : nullptr;
  if (def.caller_slot >= 0) frame.slots[def.caller_slot] = undefined("No caller defined");
  for (const Keyword& keyword : args.keywords) {
    const auto found = std::find(def.parameters.begin() + static_cast<std::ptrdiff_t>(n_positional),
                                 def.parameters.end(), keyword.name);
    if (found != def.parameters.end()) {
      slot_of(static_cast<std::size_t>(found - def.parameters.begin())) = keyword.value;
    } else if (keyword.name == "caller" && def.caller_slot >= 0) {
      frame.slots[def.caller_slot] = keyword.value;
    } else if (rest != nullptr) {
      rest->set(str(keyword.name), keyword.value);
    } else {
      fail("macro '" + def.name + "' takes no keyword argument '" + std::string(keyword.name) +
           "'");
      return false;
    }
  }
  if (rest != nullptr) frame.slots[def.kwargs_slot] = Value::of(rest);
  if (def.varargs_slot >= 0) {
    List* more = list();
    more->items.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(n_positional),
                       args.positional.end());
    frame.slots[def.varargs_slot] = Value::tuple(more);
  } else if (args.positional.size() > n) {
    fail("macro '" + def.name + "' takes not more than " + std::to_string(n) + " argument(s)");
    return false;
  }
  const std::size_t first_default = n - def.defaults.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (!slot_of(i).is(Kind::missing)) continue;
    slot_of(i) = i < first_default
                     ? undefined("parameter '" + def.parameters[i] + "' was not provided")
                     : eval(*def.defaults[i - first_default]);
    if (failed_) return false;
  }
  return true;
}

}  // namespace kvasir::text::tmpl
