#include "tokenizer/nfc.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utf8proc.h>
#include <vector>

#include "tokenizer/code_points.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

int combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

/// No canonical decomposition is longer than four code points (Unicode 15, UAX #15 table 1).
constexpr size_t max_decomposition = 8;

void decompose(std::string_view text, std::vector<int32_t>& out) {
  for (size_t at = 0; at < text.size();) {
    const Character character = read_character(text.data() + at);
    std::array<int32_t, max_decomposition> parts{};
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(character.code_point), parts.data(),
                                               max_decomposition, UTF8PROC_DECOMPOSE, nullptr);
    out.insert(out.end(), parts.begin(), parts.begin() + count);
    at += character.length;
  }
}

/// Canonical ordering: marks between two starters by combining class, equal classes in the order given.
/// utf8proc's own is quadratic in the number of marks, so text from a stranger could stall it.
void order_marks(std::vector<int32_t>& code_points) {
  const auto is_starter = [](int32_t c) { return combining_class(c) == 0; };
  std::vector<uint64_t> keys;  // class, position and code point (21 bits): sorting them is stable
  auto at = code_points.begin();
  while (at != code_points.end()) {
    const auto first = std::find_if_not(at, code_points.end(), is_starter);
    const auto last = std::find_if(first, code_points.end(), is_starter);
    keys.clear();
    for (auto mark = first; mark != last; ++mark) {
      keys.push_back(static_cast<uint64_t>(combining_class(*mark)) << 56 |
                     static_cast<uint64_t>(mark - first) << 21 | static_cast<uint64_t>(*mark));
    }
    std::sort(keys.begin(), keys.end());
    std::transform(keys.begin(), keys.end(), first,
                   [](uint64_t key) { return static_cast<int32_t>(key & 0x1FFFFF); });
    at = last;
  }
}

void append_composed(std::string_view text, std::string& out) {
  std::vector<int32_t> code_points;
  decompose(text, code_points);
  order_marks(code_points);
  const auto count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(code_points[static_cast<size_t>(i)], bytes.data());
    out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
}

struct Run {
  size_t end;
  bool in_form;
};

/// The characters from `at` on that compose with what stands before them or have a combining class.
Run scan_combining_run(std::string_view text, size_t at, const CodePointTable& table) {
  bool in_form = true;
  int last_class = 0;
  while (at < text.size()) {
    const Character character = read_character(text.data() + at);
    const uint8_t bits = table[character.code_point];
    if ((bits & (code_point::composes | code_point::reorders)) == 0) break;
    const int current_class = combining_class(static_cast<int32_t>(character.code_point));
    if ((bits & code_point::composes) != 0 || (current_class != 0 && current_class < last_class))
      in_form = false;
    last_class = current_class;
    at += character.length;
  }
  return {at, in_form};
}

size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t high_bits = 0x8080808080808080;
  uint64_t word = 0;
  while (at + sizeof(word) <= text.size()) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & high_bits) != 0) break;
    at += sizeof(word);
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::string_view compose_nfc(std::string_view text, std::string& storage) {
  const CodePointTable& table = code_points();
  storage.clear();
  size_t copied = 0;    // text before this offset stands in storage, once something changed
  size_t previous = 0;  // where the last character starts
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = skip_ascii(text, at);
      previous = at - 1;
      continue;
    }
    const Character character = read_character(text.data() + at);
    if ((table[character.code_point] & (code_point::composes | code_point::reorders)) == 0) {
      previous = at;
      at += character.length;
      continue;
    }
    // A starter that composes with nothing before it is a safe place to cut (UAX #15, section 9.1): normalize
    // from the one before this run to the one after it.
    const Run run = scan_combining_run(text, at, table);
    if (!run.in_form) {
      storage.append(text.substr(copied, previous - copied));
      append_composed(text.substr(previous, run.end - previous), storage);
      copied = run.end;
    }
    previous = run.end;
    at = run.end;
  }
  if (copied == 0) return text;
  storage.append(text.substr(copied));
  return storage;
}

}  // namespace hexlm
