#include "runtime/stop_filter.hpp"

#include <algorithm>
#include <utility>

namespace hexlm {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

size_t StopFilter::find_stop() const {
  size_t best_begin = std::string::npos;
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = pending_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (best_begin == std::string::npos || end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
    }
  }
  return best_begin;
}

size_t StopFilter::held_back() const {
  const std::string_view text = pending_;
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, text.size()); size > held; --size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return held;
}

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  pending_ += piece;
  const size_t stop = find_stop();
  if (stop != std::string::npos) {
    stopped_ = true;
    std::string text = pending_.substr(0, stop);
    pending_.clear();
    return text;
  }
  const size_t certain = pending_.size() - held_back();
  std::string text = pending_.substr(0, certain);
  pending_.erase(0, certain);
  return text;
}

std::string StopFilter::finish() { return std::exchange(pending_, {}); }

}  // namespace hexlm
