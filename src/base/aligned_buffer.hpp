#pragma once

#include <cstddef>
#include <span>

#include "base/error.hpp"

namespace hexlm {

/// Zero-initialised memory from an anonymous map. `allocate` commits it (transparent huge pages advised);
/// `reserve` only takes address space, and pages become resident when touched: a cache of the full context
/// length costs what is used of it, and never moves when it grows.
class AlignedBuffer {
 public:
  static constexpr size_t alignment = 4096;
  AlignedBuffer() = default;
  /// Errors: limit, naming the number of bytes asked for.
  static Result<AlignedBuffer> allocate(size_t bytes);
  static Result<AlignedBuffer> reserve(size_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  AlignedBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hexlm
