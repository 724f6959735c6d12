#pragma once

#include <string>

#include "base/error.hpp"

namespace hexlm::tool {

/// Reads stdin in a way that Ctrl-C ends at once, on a terminal and on a pipe that nobody writes to. One at a
/// time: it reads ahead. Errors of both: interrupted; runtime when reading fails.
class StandardInput {
 public:
  /// The next line without its end; false at the end of the input.
  Result<bool> line(std::string& text);
  /// Everything up to the end.
  Result<std::string> rest();

 private:
  /// Appends what there is to `pending_`; false at the end.
  Result<bool> read_more();
  std::string pending_;
};

}  // namespace hexlm::tool
