#include "base/mapped_file.hpp"

#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/file_descriptor.hpp"

namespace hexlm {
namespace {

size_t page_size() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

Result<MappedFile> MappedFile::open(const std::string& path) {
  HEXLM_ASSIGN(const FileDescriptor file, open_regular_file(path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be examined: {}", path, system_reason(errno)));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(path, nullptr, 0);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    const int reason = errno;
    return fail(reason == ENOMEM ? ErrorCode::limit : ErrorCode::bad_input,
                fmt::format("{}: {} bytes cannot be mapped: {}", path, size, system_reason(reason)));
  }
  return MappedFile(path, static_cast<const std::byte*>(address), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(std::span<const std::byte> range) const {
  if (range.empty()) return;
  const auto offset = static_cast<size_t>(range.data() - data_);
  const size_t begin = offset / page_size() * page_size();
  ::madvise(const_cast<std::byte*>(data_) + begin, offset + range.size() - begin, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> range) const {
  if (range.empty()) return;
  // Inwards to whole pages: neighbours that share the first or last page may still be in use. The file's own
  // last page has no neighbour and goes too.
  const auto offset = static_cast<size_t>(range.data() - data_);
  const size_t begin = (offset + page_size() - 1) / page_size() * page_size();
  size_t end = offset + range.size();
  if (end != size_) end = end / page_size() * page_size();
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace hexlm
