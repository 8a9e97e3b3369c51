// Tokens → tree (TXT-21, TXT-22). Recursive descent with bounded nesting; names are not resolved
// here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace kvasir::text::tmpl {

// Fills program.root's body; program.source must be set and outlives the call. Errors name the
// line.
Status parse_program(Program& program);

class Parser {
 public:
  Parser(Program& program, const std::vector<Token>& tokens) : program_(program), tokens_(tokens) {}

  Result<std::vector<Stmt*>> parse_template();

 private:
  using ExprResult = Result<Expr*>;
  using StmtResult = Result<Stmt*>;

  // --- statements (parser_statements.cpp)
  Result<std::vector<Stmt*>> parse_body(std::initializer_list<std::string_view> end_tags);
  Result<std::vector<Stmt*>> parse_block_body(std::initializer_list<std::string_view> end_tags);
  StmtResult parse_statement();
  StmtResult parse_for();
  StmtResult parse_if();
  StmtResult parse_set();
  StmtResult parse_macro();
  StmtResult parse_call_block();
  StmtResult parse_filter_block();
  StmtResult parse_with();
  StmtResult parse_print();
  StmtResult parse_generation();
  Status parse_signature(FunctionDef& function);
  ExprResult parse_target(bool with_namespace, bool until_in);
  Result<Expr*> parse_target_name();
  Status check_target(Expr* target);

  // --- expressions (parser_expressions.cpp)
  ExprResult parse_tuple(bool with_condition, bool in_parentheses);
  ExprResult parse_expression(bool with_condition = true);
  ExprResult parse_condition();
  ExprResult parse_or();
  ExprResult parse_and();
  ExprResult parse_not();
  ExprResult parse_compare();
  ExprResult parse_sum();
  ExprResult parse_concat();
  ExprResult parse_product();
  ExprResult parse_power();
  ExprResult parse_unary(bool with_filters = true);
  ExprResult parse_primary(bool with_namespace = false);
  ExprResult parse_literal();
  ExprResult parse_list();
  ExprResult parse_dict();
  ExprResult parse_postfix(Expr* node);
  ExprResult parse_filters_and_tests(Expr* node);
  ExprResult parse_subscript(Expr* node);
  ExprResult parse_subscript_part();
  ExprResult parse_filter(Expr* input, bool starts_inline);
  ExprResult parse_test(Expr* node);
  Status parse_arguments(Expr& call);
  Result<Expr*> make_binary(
      ExprKind kind, Operator op, Expr* left, Expr* right, std::uint32_t line);
  Status own(Expr* parent);  // takes over the kids' depth; error when too deep

  // --- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void next() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool at_op(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_op(std::string_view op);
  Result<std::string> expect_name();
  Status expect(TokenKind kind, std::string_view what);
  Error unexpected(std::string_view expected) const;

  Expr* make(ExprKind kind, std::uint32_t line);
  Stmt* make(StmtKind kind, std::uint32_t line);

  Program& program_;
  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // loops around the current place, within the current function
};

}  // namespace kvasir::text::tmpl
