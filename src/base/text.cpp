#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace hexlm {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + static_cast<size_t>(a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// Length of the sequence that a lead byte starts, and the least second byte and the greatest that exclude
/// overlong forms, surrogates and values above U+10FFFF (Unicode 15, table 3-7). 0 for no lead byte.
struct Utf8Lead {
  int length;
  unsigned char least;
  unsigned char greatest;
};

Utf8Lead utf8_lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte < 0xf0) {
    const bool surrogates = byte == 0xed;
    const bool overlong = byte == 0xe0;
    return {3, static_cast<unsigned char>(overlong ? 0xa0 : 0x80),
            static_cast<unsigned char>(surrogates ? 0x9f : 0xbf)};
  }
  if (byte < 0xf5) {
    return {4, static_cast<unsigned char>(byte == 0xf0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xf4 ? 0x8f : 0xbf)};
  }
  return {0, 0, 0};
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 6> units = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {  // 999.5 would print as 1000
    value /= 1000;
    ++unit;
  }
  int decimals = 0;  // three significant digits, after rounding
  if (value < 9.995) {
    decimals = 2;
  } else if (value < 99.95) {
    decimals = 1;
  }
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

std::string format_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

std::string likely_meant(std::string_view word, std::span<const std::string> candidates) {
  std::string best = nearest(word, candidates);
  return edit_distance(word, best) * 3 <= std::max<size_t>(word.size(), 3) ? best : std::string();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t position = text.find(separator);
    parts.push_back(text.substr(0, position));
    if (position == std::string_view::npos) return parts;
    text.remove_prefix(position + 1);
  }
}

bool parse_integer(std::string_view text, int64_t& value) {
  int64_t parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Lead lead = utf8_lead(static_cast<unsigned char>(text[i]));
    const auto length = static_cast<size_t>(lead.length);
    if (length == 0 || length > text.size() - i) return false;
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      const bool valid = k == 1 ? byte >= lead.least && byte <= lead.greatest : (byte & 0xc0U) == 0x80U;
      if (!valid) return false;
    }
    i += length;
  }
  return true;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else {
      line += fmt::format("\\x{:02x}", byte);
    }
  }
  return line;
}

}  // namespace hexlm
