// KVASIR_CHECK(cond) << "…": aborts with place and message when a program invariant is broken.
// Always on. Never reachable from user input (that is what Result is for). KVASIR_DCHECK: debug
// builds only, for inner loops.
#pragma once

#include <sstream>

namespace kvasir {

class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  CheckFailure(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();  // prints and aborts
  template <class T>
  CheckFailure& operator<<(const T& value) {
    message_ << value;
    return *this;
  }

 private:
  std::ostringstream message_;
};

struct CheckVoidify {  // gives both branches of ?: the type void
  void operator&(const CheckFailure&) const noexcept {}
};

}  // namespace kvasir

#define KVASIR_CHECK(cond) \
  (cond) ? (void)0 : ::kvasir::CheckVoidify{} & ::kvasir::CheckFailure(#cond, __FILE__, __LINE__)
#ifdef NDEBUG
#define KVASIR_DCHECK(cond) KVASIR_CHECK(true || (cond))
#else
#define KVASIR_DCHECK(cond) KVASIR_CHECK(cond)
#endif
