// Buffer: owned, aligned memory of one device. Move-only; freed by the deleter of whoever allocated
// it.
#pragma once

#include <cstddef>
#include <utility>

namespace kvasir {

class Buffer {
 public:
  using Deleter = void (*)(void* context, std::byte* data, std::size_t size_bytes) noexcept;

  Buffer() = default;
  Buffer(std::byte* data, std::size_t size_bytes, Deleter deleter, void* context = nullptr) noexcept
      : data_(data), size_bytes_(size_bytes), deleter_(deleter), context_(context) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (deleter_) deleter_(context_, data_, size_bytes_);
  }

  std::byte* data() const noexcept { return data_; }
  float* f32() const noexcept { return reinterpret_cast<float*>(data_); }
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(deleter_, other.deleter_);
    std::swap(context_, other.context_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace kvasir
