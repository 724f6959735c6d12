#include "hexlm/standard_input.hpp"

#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/progress.hpp"

namespace hexlm::tool {

Result<bool> StandardInput::read_more() {
  std::array<char, 1 << 16> buffer;
  while (true) {
    if (!wait_for_input(STDIN_FILENO)) {
      return fail(ErrorCode::interrupted, "interrupted while waiting for stdin");
    }
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count >= 0) {
      pending_.append(buffer.data(), static_cast<size_t>(count));
      return count > 0;
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    return fail(ErrorCode::runtime, fmt::format("stdin: read failed: {}", system_reason(errno)));
  }
}

Result<bool> StandardInput::line(std::string& text) {
  size_t searched = 0;
  while (true) {
    const size_t end = pending_.find('\n', searched);
    if (end != std::string::npos) {
      text = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return true;
    }
    searched = pending_.size();
    HEXLM_ASSIGN(const bool more, read_more());
    if (more) continue;
    text = std::exchange(pending_, std::string());
    return !text.empty();
  }
}

Result<std::string> StandardInput::rest() {
  while (true) {
    HEXLM_ASSIGN(const bool more, read_more());
    if (!more) return std::exchange(pending_, std::string());
  }
}

}  // namespace hexlm::tool
