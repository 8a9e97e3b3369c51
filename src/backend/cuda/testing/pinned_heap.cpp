// Everything that this test binary allocates lies in pinned memory, which a GPU reads and writes
// over the bus at the host's addresses: tests of ops hand their vectors to them, as tests of host
// backends do. Without a GPU it is the ordinary heap.
#include <cuda_runtime.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kArenaBytes = std::size_t{2} << 30, kHeader = 64, kClasses = 48;

struct Free {
  Free* next;
};

// Blocks of powers of two, each behind a header that says which.
class Arena {
 public:
  void* take(std::size_t size_bytes) noexcept {
    const Lock lock(*this);
    if (!is_started_) start();
    const std::size_t bytes = std::bit_ceil(size_bytes + kHeader);
    const auto size_class = static_cast<std::size_t>(std::countr_zero(bytes));
    std::byte* block = reinterpret_cast<std::byte*>(free_[size_class]);
    if (block) {
      free_[size_class] = free_[size_class]->next;
    } else if (begin_ && used_ + bytes <= kArenaBytes) {
      block = begin_ + used_;
      used_ += bytes;
    } else {
      block = static_cast<std::byte*>(std::aligned_alloc(kHeader, bytes));
      if (!block) return nullptr;
    }
    *reinterpret_cast<std::size_t*>(block) = size_class;
    return block + kHeader;
  }
  void give(void* data) noexcept {
    if (!data) return;
    const Lock lock(*this);
    std::byte* const block = static_cast<std::byte*>(data) - kHeader;
    const std::size_t size_class = *reinterpret_cast<std::size_t*>(block);
    auto* const free = reinterpret_cast<Free*>(block);
    free->next = free_[size_class];
    free_[size_class] = free;
  }

 private:
  // Recursive: starting the driver allocates.
  class Lock {
   public:
    explicit Lock(Arena& arena) noexcept : arena_(arena) {
      static thread_local char self = 0;
      const void* const me = &self;
      if (arena_.owner_.load() != me) {
        const void* nobody = nullptr;
        while (!arena_.owner_.compare_exchange_weak(nobody, me)) nobody = nullptr;
      }
      ++arena_.depth_;
    }
    ~Lock() {
      if (--arena_.depth_ == 0) arena_.owner_.store(nullptr);
    }

   private:
    Arena& arena_;
  };

  void start() noexcept {
    is_started_ = true;
    int n_devices = 0;
    void* data = nullptr;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) return;
    if (cudaHostAlloc(&data, kArenaBytes, cudaHostAllocMapped) == cudaSuccess)
      begin_ = static_cast<std::byte*>(data);
  }

  std::atomic<const void*> owner_{nullptr};
  int depth_ = 0;
  bool is_started_ = false;
  std::byte* begin_ = nullptr;
  std::size_t used_ = 0;
  Free* free_[kClasses] = {};
};

constinit Arena arena;

void* take(std::size_t size_bytes) {
  void* const data = arena.take(size_bytes);
  if (!data) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t size_bytes) { return take(size_bytes); }
void* operator new[](std::size_t size_bytes) { return take(size_bytes); }
void operator delete(void* data) noexcept { arena.give(data); }
void operator delete[](void* data) noexcept { arena.give(data); }
void operator delete(void* data, std::size_t) noexcept { arena.give(data); }
void operator delete[](void* data, std::size_t) noexcept { arena.give(data); }
