#include "text/template/resolve.h"

#include <algorithm>
#include <set>

#include "text/template/lexer.h"
#include "text/template/registry.h"
#include "text/template/symbols.h"

namespace kvasir::text::tmpl {

namespace {

// Which of `names` the body reads without having assigned them before.
std::set<std::string> undeclared(const std::vector<Stmt*>& body, std::set<std::string> names) {
  std::set<std::string> found;
  walk_names(body, [&](const Expr& name) {
    if (name.kind != ExprKind::name || !names.contains(name.name)) return;
    if (name.is_store) {
      names.erase(name.name);
    } else {
      found.insert(name.name);
    }
  });
  return found;
}

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  Status run() {
    FunctionFrame root{.def = program_.root};
    Symbols symbols(program_, root, nullptr);
    symbols.visit(program_.root->body);
    program_.root->scope = symbols.scope();
    return statements(program_.root->body, symbols, /*is_soft=*/false);
  }

 private:
  // is_soft: inside a condition, where an unknown filter is an error only if it is reached.
  Status statements(const std::vector<Stmt*>& body, const Symbols& symbols, bool is_soft) {
    for (Stmt* stmt : body) KVASIR_TRY_DO(statement(*stmt, symbols, is_soft));
    return {};
  }

  Status statement(Stmt& stmt, const Symbols& symbols, bool is_soft) {
    switch (stmt.kind) {
      case StmtKind::output:
        for (Expr* e : stmt.exprs) KVASIR_TRY_DO(expression(e, symbols, is_soft));
        return {};
      case StmtKind::set:
        KVASIR_TRY_DO(expression(stmt.expr, symbols, is_soft));
        return expression(stmt.target, symbols, is_soft);
      case StmtKind::branch:
        return branch(stmt, symbols);
      case StmtKind::loop:
        return loop(stmt, symbols, is_soft);
      case StmtKind::with:
        return with(stmt, symbols, is_soft);
      case StmtKind::macro:
        KVASIR_TRY_DO(expression(stmt.target, symbols, is_soft));
        return function(*stmt.function, symbols, stmt.line);
      case StmtKind::call_block:
        KVASIR_TRY_DO(function(*stmt.function, symbols, stmt.line));
        return expression(stmt.expr, symbols, is_soft);
      case StmtKind::set_block:
      case StmtKind::filter_block:
        return captured_block(stmt, symbols, is_soft);
      case StmtKind::generation:
        return statements(stmt.body, symbols, is_soft);
      case StmtKind::break_loop:
      case StmtKind::continue_loop:
        return {};
    }
    return {};
  }

  Status branch(Stmt& stmt, const Symbols& symbols) {
    for (auto& [test, body] : stmt.branches) {
      KVASIR_TRY_DO(expression(test, symbols, true));
      KVASIR_TRY_DO(statements(body, symbols, true));
    }
    return statements(stmt.otherwise, symbols, true);
  }

  Status loop(Stmt& stmt, const Symbols& symbols, bool is_soft) {
    KVASIR_TRY_DO(expression(stmt.expr, symbols, is_soft));
    bool stores_loop = false;
    const auto check = [&](const Expr& name) {
      stores_loop |= name.kind == ExprKind::name && name.is_store && name.name == "loop";
    };
    walk_names(stmt.target, check);
    walk_names(stmt.body, check);
    walk_names(stmt.otherwise, check);
    if (stores_loop) {
      return syntax_error("Can't assign to special loop variable in for-loop", stmt.line);
    }

    Symbols inside(program_, symbols.function(), &symbols);
    if (!undeclared(stmt.body, {"loop"}).empty()) {
      stmt.loop_slot = inside.declare_parameter("loop");
    }
    inside.visit(stmt.target, /*stores_parameters=*/true);
    inside.visit(stmt.body);
    stmt.scope = inside.scope();
    KVASIR_TRY_DO(expression(stmt.target, inside, false));
    KVASIR_TRY_DO(statements(stmt.body, inside, false));

    Symbols otherwise(program_, symbols.function(), &symbols);
    otherwise.visit(stmt.otherwise);
    stmt.else_scope = otherwise.scope();
    KVASIR_TRY_DO(statements(stmt.otherwise, otherwise, false));
    if (stmt.test == nullptr) return {};

    Symbols filter(program_, symbols.function(), &symbols);
    filter.use_private_slots();
    filter.visit(stmt.test_target, true);
    filter.visit(stmt.test);
    stmt.test_scope = filter.scope();
    KVASIR_TRY_DO(expression(stmt.test_target, filter, false));
    return expression(stmt.test, filter, false);
  }

  Status with(Stmt& stmt, const Symbols& symbols, bool is_soft) {
    for (Expr* e : stmt.exprs) KVASIR_TRY_DO(expression(e, symbols, is_soft));
    Symbols inside(program_, symbols.function(), &symbols);
    for (const Expr* target : stmt.targets) inside.visit(target, true);
    inside.visit(stmt.body);
    stmt.scope = inside.scope();
    for (Expr* target : stmt.targets) KVASIR_TRY_DO(expression(target, inside, false));
    return statements(stmt.body, inside, false);
  }

  // The body of {% set x %} or {% filter %}; its filters see the block's variables.
  Status captured_block(Stmt& stmt, const Symbols& symbols, bool is_soft) {
    Symbols inside(program_, symbols.function(), &symbols);
    inside.visit(stmt.body);
    inside.visit(stmt.expr);
    stmt.scope = inside.scope();
    KVASIR_TRY_DO(statements(stmt.body, inside, false));
    KVASIR_TRY_DO(expression(stmt.expr, inside, false));
    if (stmt.target == nullptr) return {};
    return expression(stmt.target, symbols, is_soft);
  }

  Status function(FunctionDef& def, const Symbols& symbols, std::uint32_t line) {
    FunctionFrame frame{.def = &def, .depth = symbols.function().depth + 1};
    Symbols inside(program_, frame, &symbols);
    for (const std::string& name : def.parameters) {
      def.parameter_slots.push_back(inside.declare_parameter(name));
    }
    const auto position = std::find(def.parameters.begin(), def.parameters.end(), "caller");
    const auto first_default =
        def.parameters.end() - static_cast<std::ptrdiff_t>(def.defaults.size());
    const std::set<std::string> specials = undeclared(def.body, {"caller", "kwargs", "varargs"});
    for (const std::string& name : specials) {
      const bool is_parameter =
          std::find(def.parameters.begin(), def.parameters.end(), name) != def.parameters.end();
      if (is_parameter) continue;
      const int slot = inside.declare_parameter(name);
      (name == "caller"   ? def.caller_slot
       : name == "kwargs" ? def.kwargs_slot
                          : def.varargs_slot) = slot;
    }
    if (specials.contains("caller") && position < first_default) {
      return syntax_error("the special \"caller\" argument must be given a default", line);
    }
    for (const Expr* value : def.defaults) inside.visit(value);
    inside.visit(def.body);
    def.scope = inside.scope();
    for (Expr* value : def.defaults) KVASIR_TRY_DO(expression(value, inside, false));
    return statements(def.body, inside, false);
  }

  Status expression(Expr* e, const Symbols& symbols, bool is_soft) {
    if (e == nullptr) return {};
    if (e->kind == ExprKind::name || e->kind == ExprKind::namespace_ref) {
      e->slot = symbols.ref(e->name);
    }
    if (e->kind == ExprKind::conditional) is_soft = true;
    if (e->kind == ExprKind::filter) {
      e->filter = find_filter(e->name);
      if (e->filter == nullptr && !is_soft) {
        return syntax_error("No filter named '" + e->name + "'.", e->line);
      }
    }
    if (e->kind == ExprKind::test) {
      e->test = find_test(e->name);
      if (e->test == nullptr && !is_soft) {
        return syntax_error("No test named '" + e->name + "'.", e->line);
      }
    }
    for (Expr* kid : e->kids) KVASIR_TRY_DO(expression(kid, symbols, is_soft));
    for (auto& [name, kid] : e->keywords) KVASIR_TRY_DO(expression(kid, symbols, is_soft));
    KVASIR_TRY_DO(expression(e->star_args, symbols, is_soft));
    return expression(e->star_keywords, symbols, is_soft);
  }

  Program& program_;
};

}  // namespace

Status resolve_program(Program& program) { return Resolver(program).run(); }

}  // namespace kvasir::text::tmpl
