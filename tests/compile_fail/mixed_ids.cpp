#include "base/ids.h"

int main() {
  kvasir::BlockId block{1};
#if MISUSE
  kvasir::KvRowId other = block;
#else
  kvasir::BlockId other = block;
#endif
  return static_cast<int>(other.value - block.value);
}
