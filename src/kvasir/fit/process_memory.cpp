#include "kvasir/fit/process_memory.h"

#include <malloc.h>
#include <sys/prctl.h>

#include <fstream>
#include <sstream>
#include <string>

namespace kvasir {

std::uint64_t anonymous_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::uint64_t total = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kib = 0;
    if (words >> key >> kib && (key == "Anonymous:" || key == "Pss_Shmem:")) total += kib * 1024;
  }
  return total;
}

std::uint64_t bytes_at_start() {
  static const std::uint64_t bytes = anonymous_bytes();
  return bytes;
}

std::uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void release_freed_heap() { malloc_trim(0); }

SmallPages::SmallPages() { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
SmallPages::~SmallPages() { prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }

}  // namespace kvasir
