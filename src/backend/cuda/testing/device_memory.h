// Test helpers: a CUDA device, host values in its memory, results back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "base/check.h"
#include "ops/op_table.h"

#define KVASIR_NEEDS_CUDA() \
  if (!cuda_is_available()) GTEST_SKIP() << "no CUDA device"

namespace kvasir::backend::cuda::testing {

// One for all tests of a binary: starting one takes a while.
inline ops::Device& cuda_device() {
  static const std::unique_ptr<ops::Device> device = *make_cuda_device({});
  return *device;
}

// An array in device memory.
template <class T>
class Array {
 public:
  Array(ops::Device& device, std::size_t n)
      : device_(device), n_(n), memory_(*device.allocate(n * sizeof(T))) {}
  Array(ops::Device& device, const std::vector<T>& values) : Array(device, values.size()) {
    set(values);
  }

  void set(const std::vector<T>& values) {
    device_.copy(memory_.data(), reinterpret_cast<const std::byte*>(values.data()),
                 values.size() * sizeof(T));
    KVASIR_CHECK(device_.synchronize().has_value());
  }
  std::vector<T> get() const {
    std::vector<T> values(n_);
    device_.copy(reinterpret_cast<std::byte*>(values.data()), memory_.data(), n_ * sizeof(T));
    const Status done = device_.synchronize();
    EXPECT_TRUE(done.has_value()) << done.error().what;
    return values;
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::span<T> span() const { return {data(), n_}; }

 private:
  ops::Device& device_;
  std::size_t n_;
  Buffer memory_;
};

}  // namespace kvasir::backend::cuda::testing
