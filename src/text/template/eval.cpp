// Expressions.
#include <algorithm>
#include <vector>

#include "text/template/interp.h"
#include "text/template/nesting.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/registry.h"
#include "text/template/slices.h"

namespace kvasir::text::tmpl {

Value Interp::eval(const Expr& e) {
  if (!tick()) return Value::error();
  if (e.kind == ExprKind::literal) return e.literal;
  if (e.kind == ExprKind::name) return eval_name(e);
  const NestingGuard guard(*this);
  return guard.fits() ? eval_inner(e) : Value::error();
}

Value Interp::eval_inner(const Expr& e) {
  switch (e.kind) {
    case ExprKind::literal:
      return e.literal;
    case ExprKind::name:
      return eval_name(e);
    case ExprKind::namespace_ref:
      return fail("a namespace reference is no value");
    case ExprKind::tuple:
    case ExprKind::list:
    case ExprKind::dict:
      return eval_collection(e);
    case ExprKind::attribute: {
      const Value object = eval(*e.kids[0]);
      line_ = e.line;
      return object.is_error() ? object : get_attribute(object, e.name);
    }
    case ExprKind::item: {
      const Value object = eval(*e.kids[0]);
      if (object.is_error()) return object;
      const Value key = eval(*e.kids[1]);
      line_ = e.line;
      return key.is_error() ? key : get_item(object, key);
    }
    case ExprKind::slice:
      return eval_slice(e);
    case ExprKind::call:
      return eval_call(e, nullptr);
    case ExprKind::filter:
      return eval_filter(e, nullptr);
    case ExprKind::test:
      return eval_test(e);
    case ExprKind::negate:
    case ExprKind::plus: {
      const Value v = eval(*e.kids[0]);
      return v.is_error() ? v : negate(*this, v, e.kind == ExprKind::plus);
    }
    case ExprKind::logical_not: {
      const Value v = eval(*e.kids[0]);
      if (v.is_error()) return v;
      const bool holds = truth(v);
      return failed_ ? Value::error() : Value::of(!holds);
    }
    case ExprKind::binary:
      return eval_binary(e);
    case ExprKind::concat: {
      Builder text;
      for (const Expr* kid : e.kids) {
        const Value v = eval(*kid);
        if (v.is_error() || !append_str(*this, text, v)) return Value::error();
      }
      return finish(text);
    }
    case ExprKind::compare:
      return eval_compare(e);
    case ExprKind::logical_and:
    case ExprKind::logical_or: {
      const Value left = eval(*e.kids[0]);
      if (left.is_error()) return left;
      const bool holds = truth(left);
      if (failed_) return Value::error();
      return holds == (e.kind == ExprKind::logical_and) ? eval(*e.kids[1]) : left;
    }
    case ExprKind::conditional: {
      const Value test = eval(*e.kids[0]);
      if (test.is_error()) return test;
      const bool holds = truth(test);
      if (failed_) return Value::error();
      const Expr* chosen = e.kids[holds ? 1 : 2];
      return chosen != nullptr ? eval(*chosen)
                               : undefined(
                                     "the inline if-expression evaluated to false and no else "
                                     "section was defined.");
    }
  }
  return fail("unknown expression");
}

Value Interp::eval_name(const Expr& e) {
  const Value& v = slot(e.slot);
  if (!v.is(Kind::missing)) return v;
  line_ = e.line;
  return undefined("'" + e.name + "' is undefined");
}

Value Interp::eval_collection(const Expr& e) {
  if (e.kind == ExprKind::dict) {
    Dict* members = dict();
    for (std::size_t i = 0; i + 1 < e.kids.size(); i += 2) {
      const Value key = eval(*e.kids[i]);
      const Value value = key.is_error() ? key : eval(*e.kids[i + 1]);
      if (value.is_error()) return value;
      line_ = e.line;
      if (!hashable(key)) return fail("unhashable type: '" + std::string(type_name(key)) + "'");
      members->set(key, value);
    }
    return Value::of(members);
  }
  List* items = list();
  items->items.reserve(e.kids.size());
  for (const Expr* kid : e.kids) {
    const Value item = eval(*kid);
    if (item.is_error()) return item;
    items->items.push_back(item);
  }
  return e.kind == ExprKind::tuple ? Value::tuple(items) : Value::of(items);
}

Value Interp::eval_binary(const Expr& e) {
  const Value left = eval(*e.kids[0]);
  if (left.is_error()) return left;
  const Value right = eval(*e.kids[1]);
  if (right.is_error()) return right;
  line_ = e.line;
  return binary(*this, e.op, left, right);
}

Value Interp::eval_compare(const Expr& e) {
  Value left = eval(*e.kids[0]);
  if (left.is_error()) return left;
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    const Value right = eval(*e.kids[i + 1]);
    if (right.is_error()) return right;
    line_ = e.line;
    const auto holds = compare(*this, e.operators[i], left, right);
    if (!holds) return Value::error();
    if (!*holds) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Value Interp::eval_slice(const Expr& e) {
  const Value object = eval(*e.kids[0]);
  if (object.is_error()) return object;
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i] = e.kids[i + 1] != nullptr ? eval(*e.kids[i + 1]) : Value::none();
    if (parts[i].is_error()) return parts[i];
  }
  line_ = e.line;
  return slice(*this, object, parts[0], parts[1], parts[2]);
}

struct Interp::EvaluatedArgs {
  std::vector<Value> positional;
  std::vector<Keyword> keywords;
  Args view() const { return {positional, keywords}; }
};

// kids[0] is the callee or filtered value, the rest are arguments.
bool Interp::eval_args(const Expr& e, EvaluatedArgs& out) {
  out.positional.reserve(e.kids.size());
  for (std::size_t i = 1; i < e.kids.size(); ++i) {
    out.positional.push_back(eval(*e.kids[i]));
    if (failed_) return false;
  }
  for (const auto& [name, expr] : e.keywords) {
    out.keywords.push_back({name, eval(*expr)});
    if (failed_) return false;
  }
  if (e.star_args != nullptr) {
    const Value more = eval(*e.star_args);
    Iter* items = more.is_error() ? nullptr : iterate(more);
    if (items == nullptr) return false;
    for (Value item; items->next(*this, item);) out.positional.push_back(item);
  }
  if (e.star_keywords != nullptr && !failed_) {
    const Value more = eval(*e.star_keywords);
    if (more.is_error()) return false;
    if (!more.is(Kind::dict)) {
      fail("argument after ** must be a mapping, not " + std::string(type_name(more)));
      return false;
    }
    for (const auto& [key, value] : more.dict->entries) {
      if (!key.is_string()) {
        fail("keywords must be strings");
        return false;
      }
      out.keywords.push_back({key.text(), value});
    }
  }
  return !failed_;
}

Value Interp::eval_filter(const Expr& e, const Value* input) {
  Value value;
  if (e.kids[0] == nullptr) {
    value = *input;
  } else {
    value = e.kids[0]->kind == ExprKind::filter && input != nullptr ? eval_filter(*e.kids[0], input)
                                                                    : eval(*e.kids[0]);
  }
  if (value.is_error()) return value;
  EvaluatedArgs args;
  if (!eval_args(e, args)) return Value::error();
  line_ = e.line;
  if (e.filter == nullptr) return fail("No filter named '" + e.name + "' found.");
  return e.filter->apply(*this, value, args.view());
}

Value Interp::eval_test(const Expr& e) {
  const Value value = eval(*e.kids[0]);
  if (value.is_error()) return value;
  EvaluatedArgs args;
  if (!eval_args(e, args)) return Value::error();
  line_ = e.line;
  if (e.test == nullptr) return fail("No test named '" + e.name + "' found.");
  const bool holds = e.test->holds(*this, value, args.view());
  return failed_ ? Value::error() : Value::of(holds);
}

Value Interp::eval_call(const Expr& e, const Value* caller) {
  const Value callee = eval(*e.kids[0]);
  if (callee.is_error()) return callee;
  EvaluatedArgs args;
  if (!eval_args(e, args)) return Value::error();
  if (caller != nullptr) args.keywords.push_back({"caller", *caller});
  line_ = e.line;
  return call(callee, args.view());
}

}  // namespace kvasir::text::tmpl
