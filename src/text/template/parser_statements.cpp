#include <algorithm>

#include "text/template/interp.h"
#include "text/template/parser.h"

namespace kvasir::text::tmpl {

bool Parser::at_op(std::string_view op) const {
  return current().kind == TokenKind::op && current().text == op;
}
bool Parser::at_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}
bool Parser::skip_op(std::string_view op) {
  const bool found = at_op(op);
  if (found) next();
  return found;
}
bool Parser::skip_name(std::string_view name) {
  const bool found = at_name(name);
  if (found) next();
  return found;
}

Error Parser::unexpected(std::string_view expected) const {
  const Token& token = current();
  std::string got;
  switch (token.kind) {
    case TokenKind::end:
      got = "the end of the template";
      break;
    case TokenKind::variable_end:
      got = "'}}'";
      break;
    case TokenKind::block_end:
      got = "'%}'";
      break;
    case TokenKind::string:
      got = "a string";
      break;
    default:
      got = "'" + token.text + "'";
      break;
  }
  return syntax_error("expected " + std::string(expected) + ", got " + got, token.line);
}

Status Parser::expect_op(std::string_view op) {
  if (skip_op(op)) return {};
  return unexpected("'" + std::string(op) + "'");
}
Result<std::string> Parser::expect_name() {
  if (current().kind != TokenKind::name) return unexpected("a name");
  std::string name = current().text;
  next();
  return name;
}
Status Parser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) return unexpected(what);
  next();
  return {};
}

Expr* Parser::make(ExprKind kind, std::uint32_t line) {
  Expr& e = program_.exprs.emplace_back();
  e.kind = kind;
  e.line = line;
  return &e;
}
Stmt* Parser::make(StmtKind kind, std::uint32_t line) {
  Stmt& s = program_.stmts.emplace_back();
  s.kind = kind;
  s.line = line;
  return &s;
}

Result<std::vector<Stmt*>> Parser::parse_template() { return parse_body({}); }

// Statements up to a tag in end_tags (left as the current token, behind its `{%`) or the template's
// end.
Result<std::vector<Stmt*>> Parser::parse_body(std::initializer_list<std::string_view> end_tags) {
  std::vector<Stmt*> body;
  Stmt* output = nullptr;  // neighbouring text and {{ }} make one statement
  while (current().kind != TokenKind::end) {
    const Token& token = current();
    if (token.kind != TokenKind::block_begin && output == nullptr) {
      output = make(StmtKind::output, token.line);
      body.push_back(output);
    }
    if (token.kind == TokenKind::data) {
      Expr* text = make(ExprKind::literal, token.line);
      Str* s = make_str(program_.literals, token.text);
      s->n_chars = count_chars(token.text);
      text->literal = Value::of(s);
      output->exprs.push_back(text);
      next();
    } else if (token.kind == TokenKind::variable_begin) {
      next();
      KVASIR_TRY(Expr * value, parse_tuple(true, false));
      output->exprs.push_back(value);
      KVASIR_TRY_DO(expect(TokenKind::variable_end, "'}}'"));
    } else {
      output = nullptr;
      next();
      const auto is_current = [this](std::string_view tag) { return at_name(tag); };
      if (std::any_of(end_tags.begin(), end_tags.end(), is_current)) return body;
      KVASIR_TRY(Stmt * statement, parse_statement());
      body.push_back(statement);
      KVASIR_TRY_DO(expect(TokenKind::block_end, "'%}'"));
    }
  }
  if (end_tags.size() == 0) return body;
  return unexpected("'" + std::string(*(end_tags.end() - 1)) + "'");
}

// The rest of an opening tag, then its body; the current token is the closing tag's name.
Result<std::vector<Stmt*>> Parser::parse_block_body(
    std::initializer_list<std::string_view> end_tags) {
  skip_op(":");
  KVASIR_TRY_DO(expect(TokenKind::block_end, "'%}'"));
  if (nesting_ >= kMaxNesting) return syntax_error("nested too deeply", current().line);
  ++nesting_;
  auto body = parse_body(end_tags);
  --nesting_;
  return body;
}

Parser::StmtResult Parser::parse_statement() {
  if (current().kind != TokenKind::name) return unexpected("a tag name");
  const std::string& tag = current().text;
  const std::uint32_t line = current().line;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "print") return parse_print();
  if (tag == "generation") return parse_generation();
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return syntax_error("'" + tag + "' outside of a loop", line);
    next();
    return make(tag == "break" ? StmtKind::break_loop : StmtKind::continue_loop, line);
  }
  return syntax_error("Encountered unknown tag '" + tag + "'", line);
}

Parser::StmtResult Parser::parse_for() {
  Stmt* loop = make(StmtKind::loop, current().line);
  next();
  const std::size_t target_begin = at_;
  KVASIR_TRY(loop->target, parse_target(false, /*until_in=*/true));
  if (!skip_name("in")) return unexpected("'in'");
  KVASIR_TRY(loop->expr, parse_tuple(false, false));
  if (skip_name("if")) {
    KVASIR_TRY(loop->test, parse_expression());
    const std::size_t resume = at_;
    at_ = target_begin;  // the filter binds variables of its own
    KVASIR_TRY(loop->test_target, parse_target(false, true));
    at_ = resume;
  }
  if (at_name("recursive")) {
    return syntax_error("recursive loops are not supported", current().line);
  }
  ++loops_;
  auto body = parse_block_body({"else", "endfor"});
  --loops_;
  if (!body) return std::move(body).error();
  loop->body = *std::move(body);
  if (skip_name("else")) {
    loop->has_otherwise = true;
    KVASIR_TRY(loop->otherwise, parse_block_body({"endfor"}));
  }
  next();
  return loop;
}

Parser::StmtResult Parser::parse_if() {
  Stmt* branch = make(StmtKind::branch, current().line);
  while (true) {
    next();
    KVASIR_TRY(Expr * test, parse_tuple(false, false));
    KVASIR_TRY(auto body, parse_block_body({"elif", "else", "endif"}));
    branch->branches.emplace_back(test, std::move(body));
    if (at_name("elif")) continue;
    if (skip_name("else")) {
      branch->has_otherwise = true;
      KVASIR_TRY(branch->otherwise, parse_block_body({"endif"}));
    }
    next();
    return branch;
  }
}

Parser::StmtResult Parser::parse_set() {
  Stmt* set = make(StmtKind::set, current().line);
  next();
  KVASIR_TRY(set->target, parse_target(/*with_namespace=*/true, false));
  if (skip_op("=")) {
    KVASIR_TRY(set->expr, parse_tuple(true, false));
    return set;
  }
  set->kind = StmtKind::set_block;
  KVASIR_TRY(set->expr, parse_filter(nullptr, false));
  KVASIR_TRY(set->body, parse_block_body({"endset"}));
  next();
  return set;
}

Status Parser::parse_signature(FunctionDef& function) {
  KVASIR_TRY_DO(expect_op("("));
  while (!at_op(")")) {
    KVASIR_TRY(Expr * parameter, parse_target_name());
    parameter->is_parameter = true;
    function.parameters.push_back(parameter->name);
    function.parameter_names.push_back(parameter);
    if (skip_op("=")) {
      KVASIR_TRY(Expr * value, parse_expression());
      function.defaults.push_back(value);
    } else if (!function.defaults.empty()) {
      return syntax_error("non-default argument follows default argument", parameter->line);
    }
    if (!skip_op(",")) break;
  }
  return expect_op(")");
}

Parser::StmtResult Parser::parse_macro() {
  Stmt* macro = make(StmtKind::macro, current().line);
  next();
  KVASIR_TRY(macro->target, parse_target_name());
  macro->function = &program_.functions.emplace_back();
  macro->function->name = macro->target->name;
  KVASIR_TRY_DO(parse_signature(*macro->function));
  const int outer_loops = std::exchange(loops_, 0);
  auto body = parse_block_body({"endmacro"});
  loops_ = outer_loops;
  if (!body) return std::move(body).error();
  macro->function->body = *std::move(body);
  next();
  return macro;
}

Parser::StmtResult Parser::parse_call_block() {
  Stmt* call = make(StmtKind::call_block, current().line);
  next();
  call->function = &program_.functions.emplace_back();
  call->function->name = "caller";
  if (at_op("(")) KVASIR_TRY_DO(parse_signature(*call->function));
  KVASIR_TRY(call->expr, parse_expression());
  if (call->expr->kind != ExprKind::call) return syntax_error("expected call", call->line);
  const int outer_loops = std::exchange(loops_, 0);
  auto body = parse_block_body({"endcall"});
  loops_ = outer_loops;
  if (!body) return std::move(body).error();
  call->function->body = *std::move(body);
  next();
  return call;
}

Parser::StmtResult Parser::parse_filter_block() {
  Stmt* block = make(StmtKind::filter_block, current().line);
  next();
  KVASIR_TRY(block->expr, parse_filter(nullptr, /*starts_inline=*/true));
  KVASIR_TRY(block->body, parse_block_body({"endfilter"}));
  next();
  return block;
}

Parser::StmtResult Parser::parse_with() {
  Stmt* with = make(StmtKind::with, current().line);
  next();
  while (current().kind != TokenKind::block_end) {
    if (!with->targets.empty()) KVASIR_TRY_DO(expect_op(","));
    KVASIR_TRY(Expr * target, parse_target(false, false));
    KVASIR_TRY_DO(expect_op("="));
    KVASIR_TRY(Expr * value, parse_expression());
    with->targets.push_back(target);
    with->exprs.push_back(value);
  }
  KVASIR_TRY(with->body, parse_block_body({"endwith"}));
  next();
  return with;
}

Parser::StmtResult Parser::parse_print() {
  Stmt* print = make(StmtKind::output, current().line);
  next();
  while (current().kind != TokenKind::block_end) {
    if (!print->exprs.empty()) KVASIR_TRY_DO(expect_op(","));
    KVASIR_TRY(Expr * value, parse_expression());
    print->exprs.push_back(value);
  }
  return print;
}

// Marks the assistant's text for training; rendering ignores it.
Parser::StmtResult Parser::parse_generation() {
  Stmt* block = make(StmtKind::generation, current().line);
  next();
  KVASIR_TRY(block->body, parse_block_body({"endgeneration"}));
  next();
  return block;
}

Result<Expr*> Parser::parse_target_name() {
  const std::uint32_t line = current().line;
  Expr* target = make(ExprKind::name, line);
  KVASIR_TRY(target->name, expect_name());
  KVASIR_TRY_DO(check_target(target));
  return target;
}

// A name, a namespace's attribute, or a tuple of them.
Parser::ExprResult Parser::parse_target(bool with_namespace, bool until_in) {
  const std::uint32_t line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return (until_in && at_name("in")) || at_op("=") || at_op(")") ||
           current().kind == TokenKind::block_end;
  };
  while (!at_end()) {
    KVASIR_TRY(Expr * item, parse_primary(with_namespace));
    items.push_back(item);
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  Expr* target = nullptr;
  if (!is_tuple && items.size() == 1) {
    target = items[0];
  } else if (is_tuple) {
    target = make(ExprKind::tuple, line);
    target->kids = std::move(items);
    KVASIR_TRY_DO(own(target));
  } else {
    return unexpected("a name to assign to");
  }
  KVASIR_TRY_DO(check_target(target));
  return target;
}

Status Parser::check_target(Expr* target) {
  if (target->kind == ExprKind::tuple) {
    for (Expr* item : target->kids) KVASIR_TRY_DO(check_target(item));
    return {};
  }
  if (target->kind == ExprKind::namespace_ref) return {};
  constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  const bool is_reserved =
      std::find(std::begin(kReserved), std::end(kReserved), target->name) != std::end(kReserved);
  if (target->kind != ExprKind::name || is_reserved) {
    return syntax_error("can't assign to this expression", target->line);
  }
  target->is_store = true;
  return {};
}

Status parse_program(Program& program) {
  KVASIR_TRY(const std::vector<Token> tokens, tokenize(program.source));
  Parser parser(program, tokens);
  KVASIR_TRY(auto body, parser.parse_template());
  program.root = &program.functions.emplace_back();
  program.root->body = std::move(body);
  return {};
}

}  // namespace kvasir::text::tmpl
