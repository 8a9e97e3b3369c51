// One rendering: evaluates the tree of a Program against variables, within the limits of TXT-30.
// Failing functions return Value::error() (or false, null) after fail(); the first message wins and
// failed() is then true.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat_template.h"
#include "text/template/arena.h"
#include "text/template/ast.h"
#include "text/template/str.h"
#include "text/template/value.h"

namespace kvasir::text::tmpl {

inline constexpr std::int64_t kMaxNodes = 10'000'000;  // TXT-30
inline constexpr int kMaxNesting = 200;                // TXT-30: macro calls, nested data
inline constexpr int kMaxTreeDepth = 4000;             // evaluation frames on the machine's stack
inline constexpr std::size_t kMaxArenaBytes = std::size_t{512} << 20;
// Bytes scanned or copied by string and list operations: bounds what a single cheap node can cost.
inline constexpr std::int64_t kMaxWork = std::int64_t{768} << 20;
inline constexpr std::int64_t kWorkOfItem = 16;

// A one-pass source of values. next: false at the end or on failure (Interp::failed tells).
struct Iter {
  virtual bool next(Interp& in, Value& out) = 0;

 protected:
  ~Iter() = default;  // arena objects; nobody deletes one
};

// Variables of one call of a Function of the program. Nested macros keep a pointer to their
// maker's.
struct Activation {
  Activation* outer = nullptr;
  Value* slots = nullptr;
  bool is_captured = false;  // a macro made here may outlive the call
};

struct MacroValue {
  const FunctionDef* def = nullptr;
  Activation* outer = nullptr;
};

enum class Flow : std::uint8_t { next, break_loop, continue_loop, error };

class Interp {
 public:
  Interp(const Program& program, const RenderOptions& options);

  // Renders everything; the text is in output(). False: failed, see message() and line().
  bool run(const json::Object& variables);
  const Builder& output() const noexcept { return output_; }
  std::string error_text() const;  // "chat template error: … (line N)" or the limits message

  // --- for operations, filters, tests and methods
  Arena& arena() noexcept { return arena_; }
  const RenderOptions& options() const noexcept { return options_; }
  bool failed() const noexcept { return failed_; }
  Value fail(std::string message);
  Value fail_limits();
  Value fail_undefined(const Value& undefined);  // an operation on it
  bool tick(std::int64_t nodes = 1);             // false: failed
  bool work(std::int64_t bytes);                 // false: failed
  bool can_take(std::size_t bytes);              // before a big allocation; false: failed

  Value str(std::string_view bytes, bool is_content = false);  // copies
  Value finish(const Builder& built);
  List* list();
  Dict* dict();
  Value undefined(std::string why);

  Value call(const Value& callee, const Args& args);
  Value call_macro(const MacroValue& macro, const Args& args);
  Value get_attribute(const Value& object, std::string_view name);  // a.name
  Value get_item(const Value& object, const Value& key);            // a[key]
  Iter* iterate(const Value& v);                                    // null: failed
  bool truth(const Value& v);

 private:
  friend class NestingGuard;
  Flow exec(const std::vector<Stmt*>& body);
  Flow exec(const Stmt& stmt);
  Flow exec_output(const Stmt& stmt);
  Flow exec_if(const Stmt& stmt);
  Flow exec_for(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, Iter* items, LoopState* loop, bool& completed);
  Flow exec_set_block(const Stmt& stmt);
  Flow exec_filter_block(const Stmt& stmt);
  Flow exec_with(const Stmt& stmt);
  Flow exec_call_block(const Stmt& stmt);
  bool capture(const std::vector<Stmt*>& body, Value& out, Flow& flow);
  bool assign(const Expr& target, const Value& value);
  bool unpack(const Expr& target, const Value& value);
  void enter(const Scope& scope);
  void leave(const Scope& scope);
  Value& slot(const SlotRef& ref);
  void print(const Value& value);

  Value eval(const Expr& e);
  Value eval_inner(const Expr& e);
  Value eval_name(const Expr& e);
  Value eval_collection(const Expr& e);
  Value eval_binary(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_slice(const Expr& e);
  Value eval_filter(const Expr& e, const Value* input);
  Value eval_test(const Expr& e);
  Value eval_call(const Expr& e, const Value* caller);
  struct EvaluatedArgs;
  bool eval_args(const Expr& e, EvaluatedArgs& out);
  bool bind_macro(const MacroValue& macro, const Args& args, Activation& frame);
  Activation* take_activation(const FunctionDef& def, Activation* outer);
  Value make_macro(const FunctionDef& def);

  void load_variables(const json::Object& variables);
  Value from_input(const json::Value& v, bool is_content, bool is_known_word, int depth);

  const Program& program_;
  const RenderOptions& options_;
  Arena arena_;
  Builder output_;
  Builder* out_ = &output_;
  Activation* frame_ = nullptr;
  std::vector<Value> resolved_;  // by Program::names
  std::unordered_map<const FunctionDef*, std::vector<Activation*>> spare_;
  std::int64_t nodes_left_ = kMaxNodes;
  std::int64_t work_left_ = kMaxWork;
  int nesting_ = 0;
  int tree_depth_ = 0;
  std::uint32_t line_ = 0;
  bool failed_ = false;
  bool over_limits_ = false;
  std::string message_;
};

// Fills out[i] with the argument called names[i] (by position or keyword); left untouched when
// absent, so callers put defaults there first. False: failed (too many, unknown, twice, or fewer
// than required).
bool bind_args(Interp& in,
               std::string_view callee,
               const Args& args,
               std::initializer_list<std::string_view> names,
               std::size_t n_required,
               Value* out);

}  // namespace kvasir::text::tmpl
