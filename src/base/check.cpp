#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kvasir {

CheckFailure::CheckFailure(const char* condition, const char* file, int line) {
  message_ << file << ':' << line << ": check failed: " << condition << ' ';
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::abort();
}

}  // namespace kvasir
