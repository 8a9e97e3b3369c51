#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "text/template/interp.h"
#include "text/template/parser.h"

namespace kvasir::text::tmpl {

namespace {

constexpr std::uint16_t kMaxExprDepth = 1000;  // chains a + b + c … lean to the left and nest

// Counts nesting for as long as it lives.
struct Nested {
  explicit Nested(int& count) : count_(count) { ++count_; }
  ~Nested() { --count_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  int& count_;
};

std::optional<Operator> comparison(std::string_view op) {
  if (op == "==") return Operator::eq;
  if (op == "!=") return Operator::ne;
  if (op == "<") return Operator::lt;
  if (op == "<=") return Operator::le;
  if (op == ">") return Operator::gt;
  if (op == ">=") return Operator::ge;
  return std::nullopt;
}

std::optional<Operator> product(std::string_view op) {
  if (op == "*") return Operator::mul;
  if (op == "/") return Operator::div;
  if (op == "//") return Operator::floor_div;
  if (op == "%") return Operator::mod;
  return std::nullopt;
}

}  // namespace

Status Parser::own(Expr* parent) {
  std::uint16_t deepest = 0;
  const auto take = [&deepest](const Expr* kid) {
    if (kid != nullptr) deepest = std::max(deepest, kid->depth);
  };
  for (const Expr* kid : parent->kids) take(kid);
  for (const auto& [name, kid] : parent->keywords) take(kid);
  take(parent->star_args);
  take(parent->star_keywords);
  parent->depth = static_cast<std::uint16_t>(deepest + 1);
  if (parent->depth > kMaxExprDepth) return syntax_error("expression too long", parent->line);
  return {};
}

Result<Expr*> Parser::make_binary(
    ExprKind kind, Operator op, Expr* left, Expr* right, std::uint32_t line) {
  Expr* node = make(kind, line);
  node->op = op;
  node->kids = {left, right};
  KVASIR_TRY_DO(own(node));
  return node;
}

// A tuple without parentheses ends where its surroundings do.
Parser::ExprResult Parser::parse_tuple(bool with_condition, bool in_parentheses) {
  const std::uint32_t line = current().line;
  const auto at_end = [this] {
    const TokenKind kind = current().kind;
    return kind == TokenKind::variable_end || kind == TokenKind::block_end || at_op(")");
  };
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (!at_end()) {
    KVASIR_TRY(Expr * item, parse_expression(with_condition));
    items.push_back(item);
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return items[0];
  if (!is_tuple && !in_parentheses) return unexpected("an expression");
  Expr* node = make(ExprKind::tuple, line);
  node->kids = std::move(items);
  KVASIR_TRY_DO(own(node));
  return node;
}

Parser::ExprResult Parser::parse_expression(bool with_condition) {
  const Nested guard(nesting_);
  if (nesting_ > kMaxNesting) return syntax_error("nested too deeply", current().line);
  return with_condition ? parse_condition() : parse_or();
}

Parser::ExprResult Parser::parse_condition() {
  const Nested guard(nesting_);
  if (nesting_ > kMaxNesting) return syntax_error("nested too deeply", current().line);
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * value, parse_or());
  while (skip_name("if")) {
    KVASIR_TRY(Expr * test, parse_or());
    Expr* otherwise = nullptr;
    if (skip_name("else")) {
      KVASIR_TRY(otherwise, parse_condition());
    }
    Expr* node = make(ExprKind::conditional, line);
    node->kids = {test, value, otherwise};
    KVASIR_TRY_DO(own(node));
    value = node;
  }
  return value;
}

Parser::ExprResult Parser::parse_or() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * left, parse_and());
  while (skip_name("or")) {
    KVASIR_TRY(Expr * right, parse_and());
    KVASIR_TRY(left, make_binary(ExprKind::logical_or, Operator::add, left, right, line));
  }
  return left;
}

Parser::ExprResult Parser::parse_and() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * left, parse_not());
  while (skip_name("and")) {
    KVASIR_TRY(Expr * right, parse_not());
    KVASIR_TRY(left, make_binary(ExprKind::logical_and, Operator::add, left, right, line));
  }
  return left;
}

Parser::ExprResult Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nested guard(nesting_);
  if (nesting_ > kMaxNesting) return syntax_error("nested too deeply", current().line);
  Expr* node = make(ExprKind::logical_not, current().line);
  next();
  KVASIR_TRY(Expr * operand, parse_not());
  node->kids = {operand};
  KVASIR_TRY_DO(own(node));
  return node;
}

Parser::ExprResult Parser::parse_compare() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * first, parse_sum());
  Expr* node = nullptr;
  while (true) {
    std::optional<Operator> op;
    if (current().kind == TokenKind::op) op = comparison(current().text);
    if (at_name("in")) op = Operator::in;
    if (at_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
      op = Operator::not_in;
      next();
    }
    if (!op) break;
    next();
    KVASIR_TRY(Expr * operand, parse_sum());
    if (node == nullptr) {
      node = make(ExprKind::compare, line);
      node->kids = {first};
    }
    node->operators.push_back(*op);
    node->kids.push_back(operand);
  }
  if (node == nullptr) return first;
  KVASIR_TRY_DO(own(node));
  return node;
}

Parser::ExprResult Parser::parse_sum() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * left, parse_concat());
  while (at_op("+") || at_op("-")) {
    const Operator op = at_op("+") ? Operator::add : Operator::sub;
    next();
    KVASIR_TRY(Expr * right, parse_concat());
    KVASIR_TRY(left, make_binary(ExprKind::binary, op, left, right, line));
  }
  return left;
}

Parser::ExprResult Parser::parse_concat() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * first, parse_product());
  if (!at_op("~")) return first;
  Expr* node = make(ExprKind::concat, line);
  node->kids = {first};
  while (skip_op("~")) {
    KVASIR_TRY(Expr * operand, parse_product());
    node->kids.push_back(operand);
  }
  KVASIR_TRY_DO(own(node));
  return node;
}

Parser::ExprResult Parser::parse_product() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * left, parse_power());
  while (current().kind == TokenKind::op) {
    const auto op = product(current().text);
    if (!op) break;
    next();
    KVASIR_TRY(Expr * right, parse_power());
    KVASIR_TRY(left, make_binary(ExprKind::binary, *op, left, right, line));
  }
  return left;
}

Parser::ExprResult Parser::parse_power() {
  const std::uint32_t line = current().line;
  KVASIR_TRY(Expr * left, parse_unary());
  while (skip_op("**")) {  // from the left, as in Jinja
    KVASIR_TRY(Expr * right, parse_unary());
    KVASIR_TRY(left, make_binary(ExprKind::binary, Operator::pow, left, right, line));
  }
  return left;
}

Parser::ExprResult Parser::parse_unary(bool with_filters) {
  const Nested guard(nesting_);
  if (nesting_ > kMaxNesting) return syntax_error("nested too deeply", current().line);
  Expr* node = nullptr;
  if (at_op("-") || at_op("+")) {
    node = make(at_op("-") ? ExprKind::negate : ExprKind::plus, current().line);
    next();
    KVASIR_TRY(Expr * operand, parse_unary(false));
    node->kids = {operand};
    KVASIR_TRY_DO(own(node));
  } else {
    KVASIR_TRY(node, parse_primary());
  }
  KVASIR_TRY(node, parse_postfix(node));
  if (!with_filters) return node;
  return parse_filters_and_tests(node);
}

Parser::ExprResult Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  if (token.kind == TokenKind::name) {
    Expr* node = make(ExprKind::name, token.line);
    const std::string& word = token.text;
    next();
    if (word == "true" || word == "True" || word == "false" || word == "False") {
      node->kind = ExprKind::literal;
      node->literal = Value::of(word == "true" || word == "True");
    } else if (word == "none" || word == "None") {
      node->kind = ExprKind::literal;
      node->literal = Value::none();
    } else if (with_namespace && skip_op(".")) {
      node->kind = ExprKind::namespace_ref;
      node->name = word;
      KVASIR_TRY(node->attribute, expect_name());
    } else {
      node->name = word;
    }
    return node;
  }
  if (token.kind != TokenKind::op) return parse_literal();
  if (skip_op("(")) {
    KVASIR_TRY(Expr * node, parse_tuple(true, /*in_parentheses=*/true));
    KVASIR_TRY_DO(expect_op(")"));
    return node;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  return unexpected("an expression");
}

Parser::ExprResult Parser::parse_literal() {
  Expr* node = make(ExprKind::literal, current().line);
  const std::string& text = current().text;
  switch (current().kind) {
    case TokenKind::string: {
      std::string joined;
      for (; current().kind == TokenKind::string; next()) joined += current().text;
      Str* s = make_str(program_.literals, joined);
      s->n_chars = count_chars(joined);  // counted now: literals are shared by threads
      node->literal = Value::of(s);
      return node;
    }
    case TokenKind::integer: {
      int base = 10;
      if (text.size() > 2 && text[0] == '0') {
        const char prefix = static_cast<char>(text[1] | 0x20);
        base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      }
      const char* first = text.data() + (base == 10 ? 0 : 2);
      std::int64_t value = 0;
      const auto parsed = std::from_chars(first, text.data() + text.size(), value, base);
      if (parsed.ec != std::errc()) return syntax_error("integer too large", node->line);
      node->literal = Value::of(value);
      break;
    }
    case TokenKind::floating: {
      double value = 0;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
      if (parsed.ec != std::errc()) {  // out of range; the sign of the exponent tells which way
        value = text.find("e-") != text.npos || text.find("E-") != text.npos
                    ? 0.0
                    : std::numeric_limits<double>::infinity();
      }
      node->literal = Value::of(value);
      break;
    }
    default:
      return unexpected("an expression");
  }
  next();
  return node;
}

Parser::ExprResult Parser::parse_list() {
  Expr* node = make(ExprKind::list, current().line);
  KVASIR_TRY_DO(expect_op("["));
  while (!at_op("]")) {
    KVASIR_TRY(Expr * item, parse_expression());
    node->kids.push_back(item);
    if (!skip_op(",")) break;
  }
  KVASIR_TRY_DO(expect_op("]"));
  KVASIR_TRY_DO(own(node));
  return node;
}

Parser::ExprResult Parser::parse_dict() {  // kids: key, value, key, value, …
  Expr* node = make(ExprKind::dict, current().line);
  KVASIR_TRY_DO(expect_op("{"));
  while (!at_op("}")) {
    KVASIR_TRY(Expr * key, parse_expression());
    KVASIR_TRY_DO(expect_op(":"));
    KVASIR_TRY(Expr * value, parse_expression());
    node->kids.push_back(key);
    node->kids.push_back(value);
    if (!skip_op(",")) break;
  }
  KVASIR_TRY_DO(expect_op("}"));
  KVASIR_TRY_DO(own(node));
  return node;
}

}  // namespace kvasir::text::tmpl
