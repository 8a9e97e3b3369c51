// What may follow an operand: attributes, subscripts, calls, filters, tests.
#include <charconv>

#include "text/template/parser.h"

namespace kvasir::text::tmpl {

Parser::ExprResult Parser::parse_postfix(Expr* node) {
  while (true) {
    if (at_op(".") || at_op("[")) {
      KVASIR_TRY(node, parse_subscript(node));
    } else if (at_op("(")) {
      Expr* call = make(ExprKind::call, current().line);
      call->kids = {node};
      KVASIR_TRY_DO(parse_arguments(*call));
      node = call;
    } else {
      return node;
    }
  }
}

Parser::ExprResult Parser::parse_filters_and_tests(Expr* node) {
  while (true) {
    if (at_op("|")) {
      KVASIR_TRY(node, parse_filter(node, false));
    } else if (at_name("is")) {
      KVASIR_TRY(node, parse_test(node));
    } else if (at_op("(")) {
      Expr* call = make(ExprKind::call, current().line);
      call->kids = {node};
      KVASIR_TRY_DO(parse_arguments(*call));
      node = call;
    } else {
      return node;
    }
  }
}

Parser::ExprResult Parser::parse_subscript(Expr* node) {
  Expr* result = make(ExprKind::item, current().line);
  result->kids = {node};
  if (skip_op(".")) {
    if (current().kind == TokenKind::name) {
      result->kind = ExprKind::attribute;
      result->name = current().text;
      next();
    } else if (current().kind == TokenKind::integer) {
      KVASIR_TRY(Expr * index, parse_literal());
      result->kids.push_back(index);
    } else {
      return unexpected("name or number");
    }
    KVASIR_TRY_DO(own(result));
    return result;
  }
  KVASIR_TRY_DO(expect_op("["));
  std::vector<Expr*> parts;
  while (!at_op("]")) {
    if (!parts.empty()) KVASIR_TRY_DO(expect_op(","));
    KVASIR_TRY(Expr * part, parse_subscript_part());
    parts.push_back(part);
  }
  KVASIR_TRY_DO(expect_op("]"));
  const auto is_bare_slice = [](const Expr* part) {  // start:stop:step, not yet of anything
    return part->kind == ExprKind::slice && part->kids.size() == 3;
  };
  if (parts.size() == 1 && is_bare_slice(parts[0])) {
    parts[0]->kids.insert(parts[0]->kids.begin(), node);
    KVASIR_TRY_DO(own(parts[0]));
    return parts[0];
  }
  if (parts.size() == 1) {
    result->kids.push_back(parts[0]);
  } else {
    Expr* key = make(ExprKind::tuple, result->line);
    for (const Expr* part : parts) {
      if (is_bare_slice(part)) return syntax_error("a tuple of slices", result->line);
    }
    key->kids = std::move(parts);
    KVASIR_TRY_DO(own(key));
    result->kids.push_back(key);
  }
  KVASIR_TRY_DO(own(result));
  return result;
}

// An index, or a slice node with kids {start, stop, step}.
Parser::ExprResult Parser::parse_subscript_part() {
  const std::uint32_t line = current().line;
  Expr* parts[3] = {};
  if (!at_op(":")) {
    KVASIR_TRY(parts[0], parse_expression());
    if (!at_op(":")) return parts[0];
  }
  for (int i = 1; i < 3 && skip_op(":"); ++i) {
    if (at_op(":") || at_op("]") || at_op(",")) continue;
    KVASIR_TRY(parts[i], parse_expression());
  }
  Expr* slice = make(ExprKind::slice, line);
  slice->kids.assign(parts, parts + 3);
  return slice;
}

Status Parser::parse_arguments(Expr& call) {
  const std::uint32_t line = current().line;
  const auto invalid_call = [line] {
    return syntax_error("invalid syntax for function call expression", line);
  };
  KVASIR_TRY_DO(expect_op("("));
  while (!at_op(")")) {
    if (skip_op("*")) {
      if (call.star_args != nullptr || call.star_keywords != nullptr) return invalid_call();
      KVASIR_TRY(call.star_args, parse_expression());
    } else if (skip_op("**")) {
      if (call.star_keywords != nullptr) return invalid_call();
      KVASIR_TRY(call.star_keywords, parse_expression());
    } else if (current().kind == TokenKind::name && ahead().kind == TokenKind::op &&
               ahead().text == "=") {
      if (call.star_keywords != nullptr) return invalid_call();
      std::string name = current().text;
      next();
      next();
      KVASIR_TRY(Expr * value, parse_expression());
      call.keywords.emplace_back(std::move(name), value);
    } else {
      if (call.star_args != nullptr || call.star_keywords != nullptr || !call.keywords.empty()) {
        return invalid_call();
      }
      KVASIR_TRY(Expr * value, parse_expression());
      call.kids.push_back(value);
    }
    if (!skip_op(",")) break;
  }
  KVASIR_TRY_DO(expect_op(")"));
  return own(&call);
}

// kids: the input (null for a filter block's first filter), then the arguments.
Parser::ExprResult Parser::parse_filter(Expr* input, bool starts_inline) {
  while (starts_inline || skip_op("|")) {
    starts_inline = false;
    Expr* node = make(ExprKind::filter, current().line);
    KVASIR_TRY(node->name, expect_name());
    while (skip_op(".")) {
      KVASIR_TRY(const std::string part, expect_name());
      node->name += "." + part;
    }
    node->kids = {input};
    if (at_op("(")) KVASIR_TRY_DO(parse_arguments(*node));
    KVASIR_TRY_DO(own(node));
    input = node;
  }
  return input;
}

Parser::ExprResult Parser::parse_test(Expr* node) {
  Expr* test = make(ExprKind::test, current().line);
  next();
  const bool is_negated = skip_name("not");
  KVASIR_TRY(test->name, expect_name());
  while (skip_op(".")) {
    KVASIR_TRY(const std::string part, expect_name());
    test->name += "." + part;
  }
  test->kids = {node};
  const TokenKind kind = current().kind;
  const bool is_word =
      kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and");
  const bool is_value = kind == TokenKind::string || kind == TokenKind::integer ||
                        kind == TokenKind::floating || at_op("[") || at_op("{");
  if (at_op("(")) {
    KVASIR_TRY_DO(parse_arguments(*test));
  } else if (is_word || is_value) {
    if (at_name("is")) {
      return syntax_error("You cannot chain multiple tests with is", current().line);
    }
    KVASIR_TRY(Expr * argument, parse_primary());
    KVASIR_TRY(argument, parse_postfix(argument));
    test->kids.push_back(argument);
  }
  KVASIR_TRY_DO(own(test));
  if (!is_negated) return test;
  Expr* negation = make(ExprKind::logical_not, test->line);
  negation->kids = {test};
  KVASIR_TRY_DO(own(negation));
  return negation;
}

}  // namespace kvasir::text::tmpl
