#include "base/aligned_buffer.hpp"

#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/text.hpp"

namespace hexlm {
namespace {

Result<std::byte*> map_anonymous(size_t bytes, int extra_flags) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  if (address == MAP_FAILED) {
    const int reason = errno;
    return fail(ErrorCode::limit,
                fmt::format("out of memory: {} bytes ({}) asked for: {}", bytes, format_bytes(bytes),
                            system_reason(reason)),
                "use a smaller context, a smaller model or a smaller codec");
  }
  return static_cast<std::byte*>(address);
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(size_t bytes) {
  if (bytes == 0) return AlignedBuffer();
  HEXLM_ASSIGN(std::byte * data, map_anonymous(bytes, 0));
  ::madvise(data, bytes, MADV_HUGEPAGE);  // advice: a kernel without huge pages works as well, only slower
  return AlignedBuffer(data, bytes);
}

Result<AlignedBuffer> AlignedBuffer::reserve(size_t bytes) {
  if (bytes == 0) return AlignedBuffer();
  HEXLM_ASSIGN(std::byte * data, map_anonymous(bytes, MAP_NORESERVE));
  // One touched byte would make a whole huge page (2 MB) resident: against the promise to cost what is used.
  ::madvise(data, bytes, MADV_NOHUGEPAGE);
  return AlignedBuffer(data, bytes);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace hexlm
