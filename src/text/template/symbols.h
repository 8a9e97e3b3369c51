// The variables that one scope knows, with where each lives and how it gets its first value.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"

namespace kvasir::text::tmpl {

// A function being resolved. Scopes of one function share its slots; equal (level, name) pairs
// share one slot, as the scopes that use them are never alive together.
struct FunctionFrame {
  FunctionDef* def = nullptr;
  int depth = 0;  // functions around it
  std::map<std::pair<int, std::string>, int> slots{};
};

struct Ident {
  int depth = 0;  // of the function that owns the slot
  int slot = -1;
};

class Symbols {
 public:
  Symbols(Program& program, FunctionFrame& function, const Symbols* parent)
      : program_(&program),
        function_(&function),
        parent_(parent),
        level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  // The filter of a loop runs between iterations of the loop's body and so needs slots of its own.
  void use_private_slots() { slot_prefix_ = "?"; }

  // Analysis: called for each occurrence of a name, in the order of evaluation.
  void load(const std::string& name);
  void store(const std::string& name);
  int declare_parameter(const std::string& name);
  void visit(const Expr* e, bool stores_parameters = false);
  void visit(const std::vector<Stmt*>& body);

  // After the analysis.
  SlotRef ref(const std::string& name) const;
  Scope scope() const;
  FunctionFrame& function() const { return *function_; }

 private:
  struct Loading {
    int slot;
    LoadAction action;
    std::string name;  // resolve
    Ident source;      // alias
  };

  const Ident* find(const std::string& name) const;
  void define(const std::string& name, LoadAction action, Ident source = {});
  void set_loading(const Loading& loading);
  void visit(const Stmt& stmt);
  void visit_branch(const Stmt& stmt);

  Program* program_;
  FunctionFrame* function_;
  const Symbols* parent_;
  int level_;
  std::string slot_prefix_;
  std::map<std::string, Ident> refs_;
  std::vector<Loading> loads_;
  std::map<int, std::size_t> load_of_slot_;  // index into loads_
  std::set<std::string> stores_;
  std::vector<std::string> store_order_;  // each once, by its first assignment
};

// Calls visit(name, is_store) for every name in a tree, nested macros included.
using NameVisitor = std::function<void(const Expr& name)>;
void walk_names(const Expr* e, const NameVisitor& visit);
void walk_names(const std::vector<Stmt*>& body, const NameVisitor& visit);

}  // namespace kvasir::text::tmpl
