// Statements.
#include <utility>

#include "text/template/interp.h"
#include "text/template/iterators.h"
#include "text/template/loop.h"
#include "text/template/nesting.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

struct LoopTest {
  Activation* frame;
  const Stmt* stmt;
};

// The items of a loop that pass its `if`, tested one by one as the loop asks for them.
class FilteredItems final : public Iter {
 public:
  using Test = bool (*)(Interp& in, const LoopTest& loop, const Value& item);
  FilteredItems(Iter* source, Test test, const LoopTest* loop)
      : source_(source), test_(test), loop_(loop) {}
  bool next(Interp& in, Value& out) override {
    while (source_->next(in, out)) {
      if (test_(in, *loop_, out)) return true;
      if (in.failed()) return false;
    }
    return false;
  }

 private:
  Iter* source_;
  Test test_;
  const LoopTest* loop_;
};

}  // namespace

Flow Interp::exec(const std::vector<Stmt*>& body) {
  for (const Stmt* stmt : body) {
    const Flow flow = exec(*stmt);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Flow Interp::exec(const Stmt& stmt) {
  const NestingGuard guard(*this);
  line_ = stmt.line;
  if (!tick() || !guard.fits()) return Flow::error;
  switch (stmt.kind) {
    case StmtKind::output:
      return exec_output(stmt);
    case StmtKind::branch:
      return exec_if(stmt);
    case StmtKind::loop:
      return exec_for(stmt);
    case StmtKind::set: {
      const Value value = eval(*stmt.expr);
      if (value.is_error()) return Flow::error;
      line_ = stmt.line;
      return assign(*stmt.target, value) ? Flow::next : Flow::error;
    }
    case StmtKind::set_block:
      return exec_set_block(stmt);
    case StmtKind::macro:
      return assign(*stmt.target, make_macro(*stmt.function)) ? Flow::next : Flow::error;
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
    case StmtKind::filter_block:
      return exec_filter_block(stmt);
    case StmtKind::with:
      return exec_with(stmt);
    case StmtKind::call_block:
      return exec_call_block(stmt);
    case StmtKind::generation:
      return exec(stmt.body);
  }
  return Flow::error;
}

Flow Interp::exec_output(const Stmt& stmt) {
  for (const Expr* e : stmt.exprs) {
    const Value value = eval(*e);
    if (value.is_error() || !append_str(*this, *out_, value)) return Flow::error;
  }
  return Flow::next;
}

Flow Interp::exec_if(const Stmt& stmt) {
  for (const auto& [test, body] : stmt.branches) {
    const Value value = eval(*test);
    if (value.is_error()) return Flow::error;
    const bool holds = truth(value);
    if (failed_) return Flow::error;
    if (holds) return exec(body);
  }
  return exec(stmt.otherwise);
}

Flow Interp::exec_for(const Stmt& stmt) {
  const Value iterable = eval(*stmt.expr);
  if (iterable.is_error()) return Flow::error;
  line_ = stmt.line;
  LoopState state;
  state.iterable = iterable;
  state.items = iterate(iterable);
  if (state.items == nullptr) return Flow::error;
  if (stmt.test != nullptr) {
    enter(stmt.test_scope);
    if (stmt.loop_slot >= 0) frame_->is_captured = true;  // `loop` may be asked after this call
    auto* context = arena_.make<LoopTest>(LoopTest{frame_, &stmt});
    const auto test = [](Interp& in, const LoopTest& loop, const Value& item) {
      Activation* caller = std::exchange(in.frame_, loop.frame);
      bool holds = in.assign(*loop.stmt->test_target, item);
      if (holds) {
        const Value value = in.eval(*loop.stmt->test);
        holds = !value.is_error() && in.truth(value);
      }
      in.frame_ = caller;
      return holds;
    };
    state.items = arena_.make<FilteredItems>(state.items, test, context);
    state.iterable = Value::of(state.items);
  }
  LoopState* loop = &state;
  if (stmt.loop_slot >= 0) loop = arena_.make<LoopState>(state);  // the template may keep it
  bool completed = false;  // one pass of the body ran to its end: what Jinja's else looks at
  const Flow flow = run_loop(stmt, state.items, loop, completed);
  if (flow != Flow::next || failed_) return Flow::error;
  leave(stmt.scope);
  if (completed || !stmt.has_otherwise) return Flow::next;
  enter(stmt.else_scope);
  const Flow else_flow = exec(stmt.otherwise);
  leave(stmt.else_scope);
  return else_flow;
}

Flow Interp::run_loop(const Stmt& stmt, Iter* items, LoopState* loop, bool& completed) {
  Value loop_value;
  loop_value.kind = Kind::loop;
  loop_value.loop = loop;
  const bool is_observed = stmt.loop_slot >= 0;
  for (Value item; is_observed ? next_item(*this, *loop, item) : items->next(*this, item);) {
    enter(stmt.scope);
    if (is_observed) frame_->slots[stmt.loop_slot] = loop_value;
    line_ = stmt.line;
    if (!assign(*stmt.target, item)) return Flow::error;
    const Flow flow = exec(stmt.body);
    if (flow == Flow::error) return flow;
    if (flow == Flow::break_loop) break;
    completed |= flow == Flow::next;
  }
  return failed_ ? Flow::error : Flow::next;
}

bool Interp::capture(const std::vector<Stmt*>& body, Value& out, Flow& flow) {
  Builder text;
  Builder* outer = std::exchange(out_, &text);
  flow = exec(body);
  out_ = outer;
  if (flow != Flow::next) return false;
  out = finish(text);
  return !out.is_error();
}

Flow Interp::exec_set_block(const Stmt& stmt) {
  enter(stmt.scope);
  Value text;
  Flow flow = Flow::next;
  if (!capture(stmt.body, text, flow)) return flow == Flow::next ? Flow::error : flow;
  if (stmt.expr != nullptr) text = eval_filter(*stmt.expr, &text);
  if (text.is_error() || !assign(*stmt.target, text)) return Flow::error;
  leave(stmt.scope);
  return Flow::next;
}

Flow Interp::exec_filter_block(const Stmt& stmt) {
  enter(stmt.scope);
  Value text;
  Flow flow = Flow::next;
  if (!capture(stmt.body, text, flow)) return flow == Flow::next ? Flow::error : flow;
  text = eval_filter(*stmt.expr, &text);
  if (text.is_error() || !append_str(*this, *out_, text)) return Flow::error;
  leave(stmt.scope);
  return Flow::next;
}

Flow Interp::exec_with(const Stmt& stmt) {
  enter(stmt.scope);
  for (std::size_t i = 0; i < stmt.targets.size(); ++i) {
    const Value value = eval(*stmt.exprs[i]);
    if (value.is_error() || !assign(*stmt.targets[i], value)) return Flow::error;
  }
  const Flow flow = exec(stmt.body);
  leave(stmt.scope);
  return flow;
}

Flow Interp::exec_call_block(const Stmt& stmt) {
  const Value caller = make_macro(*stmt.function);
  const Value value = eval_call(*stmt.expr, &caller);
  if (value.is_error() || !append_str(*this, *out_, value)) return Flow::error;
  return Flow::next;
}

bool Interp::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::tuple) return unpack(target, value);
  Value& place = slot(target.slot);
  if (target.kind == ExprKind::name) {
    place = value;
    return true;
  }
  if (!place.is(Kind::name_space)) {
    fail("cannot assign attribute on non-namespace object");
    return false;
  }
  place.dict->set(Value::of(view_str(arena_, target.attribute)), value);
  return true;
}

bool Interp::unpack(const Expr& target, const Value& value) {
  Iter* items = is_iterable(value) ? iterate(value) : nullptr;
  if (items == nullptr) {
    fail("cannot unpack non-iterable " + std::string(type_name(value)) + " object");
    return false;
  }
  const std::size_t expected = target.kids.size();
  Value item;
  for (std::size_t i = 0; i < expected; ++i) {
    if (!items->next(*this, item)) {
      fail("not enough values to unpack (expected " + std::to_string(expected) + ", got " +
           std::to_string(i) + ")");
      return false;
    }
    if (!assign(*target.kids[i], item)) return false;
  }
  if (items->next(*this, item)) {
    fail("too many values to unpack (expected " + std::to_string(expected) + ")");
  }
  return !failed_;
}

void Interp::enter(const Scope& scope) {
  for (const Load& load : scope.loads) {
    Value& place = frame_->slots[load.slot];
    switch (load.action) {
      case LoadAction::parameter:
        break;
      case LoadAction::resolve:
        place = resolved_[static_cast<std::size_t>(load.name)];
        break;
      case LoadAction::alias:
        place = slot(load.source);
        break;
      case LoadAction::undefined:
        place = Value::bare(Kind::missing);
        break;
    }
  }
}

void Interp::leave(const Scope& scope) {
  for (const Load& load : scope.loads) frame_->slots[load.slot] = Value::bare(Kind::missing);
}

Value& Interp::slot(const SlotRef& ref) {
  Activation* frame = frame_;
  for (int i = 0; i < ref.hops; ++i) frame = frame->outer;
  return frame->slots[ref.slot];
}

}  // namespace kvasir::text::tmpl
