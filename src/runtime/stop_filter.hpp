#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hexlm {

/// Cuts a stream of text at the first stop string. Text that could still become part of one is held back, so
/// that the result does not depend on how the text was cut into pieces. Of several stop strings the one that
/// is complete first counts, the longest of those that end at the same byte.
class StopFilter {
 public:
  /// Empty strings are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  /// Adds `piece`; returns the text that is certain now.
  std::string push(std::string_view piece);
  /// A stop string has been seen; everything after it is dropped.
  bool stopped() const { return stopped_; }
  /// The held-back text, when the stream ends without a stop string.
  std::string finish();

 private:
  /// Where the first complete stop string begins; npos without one.
  size_t find_stop() const;
  /// Bytes at the end that begin a stop string.
  size_t held_back() const;
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace hexlm
