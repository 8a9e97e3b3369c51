#include "text/template/symbols.h"

#include "base/check.h"

namespace kvasir::text::tmpl {

const Ident* Symbols::find(const std::string& name) const {
  for (const Symbols* at = this; at != nullptr; at = at->parent_) {
    if (const auto found = at->refs_.find(name); found != at->refs_.end()) return &found->second;
  }
  return nullptr;
}

void Symbols::set_loading(const Loading& loading) {
  const auto [place, is_new] = load_of_slot_.try_emplace(loading.slot, loads_.size());
  if (is_new) {
    loads_.push_back(loading);
  } else {
    loads_[place->second] = loading;
  }
}

void Symbols::define(const std::string& name, LoadAction action, Ident source) {
  auto [place, is_new] = function_->slots.try_emplace({level_, slot_prefix_ + name}, 0);
  if (is_new) place->second = function_->def->n_slots++;
  refs_[name] = {function_->depth, place->second};
  set_loading({place->second, action, name, source});
}

void Symbols::load(const std::string& name) {
  if (find(name) == nullptr) define(name, LoadAction::resolve);
}

void Symbols::store(const std::string& name) {
  if (stores_.insert(name).second) store_order_.push_back(name);
  if (refs_.contains(name)) return;
  if (const Ident* outer = parent_ == nullptr ? nullptr : parent_->find(name)) {
    define(name, LoadAction::alias, *outer);
  } else {
    define(name, LoadAction::undefined);
  }
}

int Symbols::declare_parameter(const std::string& name) {
  if (stores_.insert(name).second) store_order_.push_back(name);
  define(name, LoadAction::parameter);
  return refs_[name].slot;
}

void Symbols::visit(const Expr* e, bool stores_parameters) {
  walk_names(e, [&](const Expr& name) {
    if (!name.is_store || name.kind == ExprKind::namespace_ref) {
      load(name.name);
    } else if (stores_parameters || name.is_parameter) {
      declare_parameter(name.name);
    } else {
      store(name.name);
    }
  });
}

void Symbols::visit(const std::vector<Stmt*>& body) {
  for (const Stmt* stmt : body) visit(*stmt);
}

// Only what runs in this scope itself: bodies with scopes of their own are analysed when those are
// made.
void Symbols::visit(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::output:
    case StmtKind::with:
      for (const Expr* e : stmt.exprs) visit(e);
      break;
    case StmtKind::branch:
      visit_branch(stmt);
      break;
    case StmtKind::loop:
    case StmtKind::filter_block:
    case StmtKind::call_block:
      visit(stmt.expr);
      break;
    case StmtKind::set:
      visit(stmt.expr);
      visit(stmt.target);
      break;
    case StmtKind::set_block:
    case StmtKind::macro:
      visit(stmt.target);
      break;
    case StmtKind::generation:
      visit(stmt.body);
      break;
    case StmtKind::break_loop:
    case StmtKind::continue_loop:
      break;
  }
}

// A variable that only some branches assign has, in the others, the value from outside.
void Symbols::visit_branch(const Stmt& stmt) {
  const std::size_t stored_before = store_order_.size();
  for (const auto& [test, body] : stmt.branches) {
    visit(test);
    visit(body);
  }
  visit(stmt.otherwise);
  for (std::size_t i = stored_before; i < store_order_.size(); ++i) {
    const std::string& name = store_order_[i];
    const Ident* outer = parent_ == nullptr ? nullptr : parent_->find(name);
    const int slot = refs_.at(name).slot;
    if (outer != nullptr) {
      set_loading({slot, LoadAction::alias, name, *outer});
    } else {
      set_loading({slot, LoadAction::resolve, name, {}});
    }
  }
}

SlotRef Symbols::ref(const std::string& name) const {
  const Ident* ident = find(name);
  KVASIR_CHECK(ident != nullptr) << "unresolved name";
  return {function_->depth - ident->depth, ident->slot};
}

Scope Symbols::scope() const {
  Scope scope;
  for (const Loading& loading : loads_) {
    Load load{.slot = loading.slot, .action = loading.action};
    if (loading.action == LoadAction::alias) {
      load.source = {function_->depth - loading.source.depth, loading.source.slot};
    }
    if (loading.action == LoadAction::resolve) {
      std::vector<std::string>& names = program_->names;
      const auto [place, is_new] =
          program_->name_index.try_emplace(loading.name, static_cast<int>(names.size()));
      load.name = place->second;
      if (is_new) names.push_back(loading.name);
    }
    scope.loads.push_back(load);
  }
  return scope;
}

void walk_names(const Expr* e, const NameVisitor& visit) {
  if (e == nullptr) return;
  if (e->kind == ExprKind::name || e->kind == ExprKind::namespace_ref) visit(*e);
  for (const Expr* kid : e->kids) walk_names(kid, visit);
  for (const auto& [name, kid] : e->keywords) walk_names(kid, visit);
  walk_names(e->star_args, visit);
  walk_names(e->star_keywords, visit);
}

void walk_names(const std::vector<Stmt*>& body, const NameVisitor& visit) {
  for (const Stmt* stmt : body) {
    walk_names(stmt->target, visit);
    for (const Expr* target : stmt->targets) walk_names(target, visit);
    walk_names(stmt->expr, visit);
    for (const Expr* e : stmt->exprs) walk_names(e, visit);
    if (stmt->function != nullptr) {
      for (const Expr* parameter : stmt->function->parameter_names) walk_names(parameter, visit);
      for (const Expr* value : stmt->function->defaults) walk_names(value, visit);
      walk_names(stmt->function->body, visit);
    }
    for (const auto& [test, branch] : stmt->branches) {
      walk_names(test, visit);
      walk_names(branch, visit);
    }
    walk_names(stmt->body, visit);
    walk_names(stmt->otherwise, visit);
    walk_names(stmt->test, visit);
  }
}

}  // namespace kvasir::text::tmpl
