// The tree of a compiled template. Immutable after compile; owned by Program.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/arena.h"
#include "text/template/value.h"

namespace kvasir::text::tmpl {

struct FilterDef;
struct TestDef;

enum class ExprKind : std::uint8_t {
  literal,
  name,
  namespace_ref,
  tuple,
  list,
  dict,
  attribute,
  item,
  slice,
  call,
  filter,
  test,
  negate,
  plus,
  logical_not,
  binary,
  concat,
  compare,
  logical_and,
  logical_or,
  conditional
};
enum class Operator : std::uint8_t {
  add,
  sub,
  mul,
  div,
  floor_div,
  mod,
  pow,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  in,
  not_in
};

// Where a variable lives: `hops` functions outward, then this slot. Slot −1: not resolved.
struct SlotRef {
  int hops = 0;
  int slot = -1;
};

struct Expr {
  ExprKind kind = ExprKind::literal;
  Operator op = Operator::add;
  std::uint32_t line = 0;
  std::uint16_t depth = 1;
  bool is_store = false;  // name: assigned here; a loop target or parameter when is_parameter
  bool is_parameter = false;
  SlotRef slot;  // name, namespace_ref
  Value literal;
  std::string name;         // name, attribute, filter, test, namespace_ref (variable)
  std::string attribute;    // namespace_ref
  std::vector<Expr*> kids;  // operands; null where a slice's or conditional's part is absent
  std::vector<Operator> operators;  // compare: one before each operand but the first
  std::vector<std::pair<std::string, Expr*>> keywords;
  Expr* star_args = nullptr;          // f(*x)
  Expr* star_keywords = nullptr;      // f(**x)
  const FilterDef* filter = nullptr;  // null: unknown; an error when evaluated
  const TestDef* test = nullptr;
};

enum class LoadAction : std::uint8_t { parameter, resolve, alias, undefined };
struct Load {
  int slot = -1;
  LoadAction action = LoadAction::undefined;
  int name = -1;     // resolve: index into Program::names
  SlotRef source{};  // alias
};
// What happens when a scope is entered: each of its variables gets its first value.
struct Scope {
  std::vector<Load> loads;
};

struct Stmt;
// The template itself, a macro, or the body of a call block.
struct FunctionDef {
  std::string name;
  int n_slots = 0;
  Scope scope;
  std::vector<std::string> parameters;
  std::vector<int> parameter_slots;
  std::vector<Expr*> parameter_names;                         // as parsed
  std::vector<Expr*> defaults;                                // of the last parameters
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: not used by the body
  std::vector<Stmt*> body;
};

enum class StmtKind : std::uint8_t {
  output,
  branch,
  loop,
  set,
  set_block,
  macro,
  break_loop,
  continue_loop,
  filter_block,
  with,
  call_block,
  generation
};

struct Stmt {
  StmtKind kind = StmtKind::output;
  std::uint32_t line = 0;
  std::vector<Expr*> exprs;     // output: pieces; with: values
  std::vector<Expr*> targets;   // with
  Expr* target = nullptr;       // loop, set, set_block, macro (its name)
  Expr* expr = nullptr;         // loop: iterable; set: value; set_block, filter_block: filters;
                                // call_block: the call
  Expr* test = nullptr;         // loop: filter
  Expr* test_target = nullptr;  // loop: the target's twin that the filter sees
  std::vector<std::pair<Expr*, std::vector<Stmt*>>> branches;  // branch: if and elif
  std::vector<Stmt*> body;
  std::vector<Stmt*> otherwise;
  bool has_otherwise = false;
  int loop_slot = -1;  // the `loop` variable, when the body uses it
  Scope scope, test_scope, else_scope;
  FunctionDef* function = nullptr;
};

struct Program {
  std::string source;
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<FunctionDef> functions;
  FunctionDef* root = nullptr;
  std::vector<std::string> names;  // variables that come from outside
  std::map<std::string, int> name_index;
  Arena literals{std::size_t{1} << 30};
};

}  // namespace kvasir::text::tmpl
