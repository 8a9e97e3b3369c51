#include "base/result.h"

static kvasir::Status may_fail() { return {}; }

int main() {
#if MISUSE
  may_fail();
  return 0;
#else
  return may_fail() ? 0 : 1;
#endif
}
