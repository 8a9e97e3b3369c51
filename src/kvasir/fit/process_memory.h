// What the process itself holds, read from the system: inputs of the memory model that no owner
// could state better (FIT-8). Any thread; other threads' allocations count.
#pragma once

#include <cstdint>

namespace kvasir {

// Anonymous and shared memory resident now, of /proc/self/smaps_rollup: what a memory limit counts
// and reclaim cannot take. 0 where there is no such file.
std::uint64_t anonymous_bytes();
// anonymous_bytes() at the first call, which whoever opens a model makes before it opens anything.
std::uint64_t bytes_at_start();
// Bytes of all live heap allocations.
std::uint64_t heap_bytes();
// Gives freed heap memory back to the system, so that what loading needed does not stay.
void release_freed_heap();

// While it lives, memory that the process maps comes in small pages.
class SmallPages {
 public:
  SmallPages();
  ~SmallPages();
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;
};

}  // namespace kvasir
