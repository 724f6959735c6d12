#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/format.hpp"
#include "tokenizer/jinja/methods.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/text_operations.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

const Text& text_of(const Value& self) { return *self.as_text(); }

Value like(Budget& budget, const Value& self, std::string text) {
  return make_text(&budget, std::move(text), text_of(self).markup);
}

/// A method that maps the whole text and takes no arguments.
template <std::string (*Map)(std::string_view)>
Result<Value> mapped(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the string method", arguments, {}));
  // Case mappings grow a text by at most three.
  if (!budget.room(text_of(self).bytes.size() * 3)) return Value();
  return like(budget, self, Map(text_of(self).bytes));
}

template <bool Left, bool Right>
Result<Value> stripped(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("strip", arguments, {"chars"}));
  HEXLM_ASSIGN(const Text* characters, bound.optional_text(0));
  const std::string& text = text_of(self).bytes;
  budget.spend_bytes(text.size());
  if (characters != nullptr && !budget.room(characters->bytes.size() * sizeof(char32_t))) return Value();
  return like(budget, self,
              std::string(characters == nullptr ? strip(text, Left, Right)
                                                : strip(text, characters->bytes, Left, Right)));
}

template <bool Right>
Result<Value> split(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("split", arguments, {"sep", "maxsplit"}));
  HEXLM_ASSIGN(const Text* separator, bound.optional_text(0));
  HEXLM_ASSIGN(const int64_t limit, bound.integer(1, -1));
  const std::string& text = text_of(self).bytes;
  if (separator != nullptr && separator->bytes.empty()) {
    return fail(ErrorCode::bad_input, "split got an empty separator");
  }
  return split_text(budget, text, separator == nullptr ? nullptr : &separator->bytes, limit, Right,
                    text_of(self).markup);
}

Result<Value> split_into_lines(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("splitlines", arguments, {"keepends"}));
  const std::string& text = text_of(self).bytes;
  budget.spend_bytes(text.size());
  std::vector<Value> lines;
  visit_lines(text, bound.truth(0, false), [&](std::string_view line) {
    lines.push_back(like(budget, self, std::string(line)));
    return budget.spend();
  });
  return make_sequence(&budget, std::move(lines));
}

Result<Value> replace(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}, 2));
  HEXLM_ASSIGN(const Text* old_text, bound.text(0));
  HEXLM_ASSIGN(const Text* new_text, bound.text(1));
  HEXLM_ASSIGN(const int64_t count, bound.integer(2, -1));
  if (!text_of(self).markup) {
    return like(budget, self,
                replace_text(budget, text_of(self).bytes, old_text->bytes, new_text->bytes, count));
  }
  const Value old_markup = escape_markup(budget, old_text->bytes);
  const Value new_markup = escape_markup(budget, new_text->bytes);
  return like(budget, self,
              replace_text(budget, text_of(self).bytes,
                           old_text->markup ? old_text->bytes : old_markup.as_text()->bytes,
                           new_text->markup ? new_text->bytes : new_markup.as_text()->bytes, count));
}

/// The part of the text that the optional arguments `start` and `end` (in code points) leave.
struct Window {
  std::string_view text;
  size_t first_code_point = 0;
  bool valid = true;
};

Result<Window> window_of(Budget& budget, const std::string& text, const Bound& bound) {
  budget.spend_bytes(text.size());
  HEXLM_ASSIGN(const auto start, bound.optional_integer(1));
  HEXLM_ASSIGN(const auto end, bound.optional_integer(2));
  if (!start && !end) return Window{text, 0, true};
  const auto length = static_cast<int64_t>(count_code_points(text));
  const auto resolve = [&](int64_t bound_value) {
    return bound_value < 0 ? std::max<int64_t>(bound_value + length, 0) : bound_value;
  };
  const int64_t first = resolve(start.value_or(0));
  const int64_t last = std::min(resolve(end.value_or(length)), length);
  if (first > last) return Window{{}, static_cast<size_t>(first), false};
  const size_t begin = byte_offset(text, static_cast<size_t>(first));
  const size_t stop = byte_offset(text, static_cast<size_t>(last));
  return Window{std::string_view(text).substr(begin, stop - begin), static_cast<size_t>(first), true};
}

template <bool AtEnd>
Result<Value> has_affix(Budget& budget, const Value& self, const Arguments& arguments) {
  constexpr std::string_view name = AtEnd ? "endswith" : "startswith";
  HEXLM_ASSIGN(const Bound bound, Bound::bind(name, arguments, {"prefix", "start", "end"}, 1));
  HEXLM_ASSIGN(const Window window, window_of(budget, text_of(self).bytes, bound));
  std::vector<Value> affixes = {*bound[0]};
  const Sequence* choices = bound[0]->as_sequence();
  if (choices != nullptr && choices->kind == Sequence::Kind::tuple) affixes = choices->items;
  for (const Value& affix : affixes) {
    const Text* text = affix.as_text();
    if (text == nullptr) {
      return fail(ErrorCode::bad_input,
                  affix.is_undefined() ? affix.reason()
                                       : fmt::format("{} expects a string or a tuple of strings, not '{}'",
                                                     name, affix.type_name()));
    }
    budget.spend_bytes(text->bytes.size());
    const bool matches = AtEnd ? window.text.ends_with(text->bytes) : window.text.starts_with(text->bytes);
    if (window.valid && matches) return Value::boolean(true);
  }
  return Value::boolean(false);
}

enum class Search { find, find_last, index, index_last, count };

template <Search Kind>
Result<Value> search(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("the search method", arguments, {"sub", "start", "end"}, 1));
  HEXLM_ASSIGN(const Text* part, bound.text(0));
  HEXLM_ASSIGN(const Window window, window_of(budget, text_of(self).bytes, bound));
  if (!Searcher::affordable(budget, part->bytes)) return Value();
  const Searcher searcher(part->bytes);
  if (Kind == Search::count) {
    // An empty text occurs around every code point.
    const size_t total =
        part->bytes.empty() ? count_code_points(window.text) + 1 : searcher.count(window.text);
    return Value::integer(window.valid ? static_cast<int64_t>(total) : 0);
  }
  constexpr bool last = Kind == Search::find_last || Kind == Search::index_last;
  const size_t found = last ? searcher.find_last(window.text) : searcher.find(window.text);
  if (window.valid && found != std::string_view::npos) {
    return Value::integer(
        static_cast<int64_t>(window.first_code_point + count_code_points(window.text.substr(0, found))));
  }
  if (Kind == Search::find || Kind == Search::find_last) return Value::integer(-1);
  return fail(ErrorCode::bad_input, "index did not find the string");
}

Result<Value> join(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("join", arguments, {"iterable"}, 1));
  HEXLM_ASSIGN(const std::vector<Value> items, iterate(budget, *bound[0]));
  std::vector<std::string> parts;
  for (const Value& item : items) {
    const Text* text = item.as_text();
    if (text == nullptr) {
      return fail(ErrorCode::bad_input, fmt::format("join expects strings, not '{}'", item.type_name()));
    }
    if (!budget.spend_bytes(text->bytes.size()) || !budget.room(text->bytes.size())) break;
    const bool escape = text_of(self).markup && !text->markup;
    parts.push_back(escape ? escape_markup(budget, text->bytes).as_text()->bytes : text->bytes);
  }
  return like(budget, self, join_texts(budget, parts, text_of(self).bytes));
}

enum class Test { alphabetic, alphanumeric, decimal, digit, space, lower, upper, ascii };

template <Test Kind>
bool passes(char32_t c) {
  switch (Kind) {
    case Test::alphabetic:
      return is_alphabetic(c);
    case Test::alphanumeric:
      return is_alphabetic(c) || is_decimal(c);
    case Test::decimal:
    case Test::digit:
      return is_decimal(c);
    case Test::space:
      return is_space(c);
    case Test::lower:
      return !is_cased(c) || is_lower(c);
    case Test::upper:
      return !is_cased(c) || is_upper(c);
    case Test::ascii:
      return c < 0x80;
  }
  return false;
}

template <Test Kind>
Result<Value> tested(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the string test", arguments, {}));
  const std::string& text = text_of(self).bytes;
  budget.spend_bytes(text.size());
  // Case is a property of texts with letters only; the other tests fail on the empty text, except isascii.
  bool relevant = Kind == Test::ascii;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if (!passes<Kind>(c)) return Value::boolean(false);
    relevant |= (Kind != Test::lower && Kind != Test::upper) || is_cased(c);
  }
  return Value::boolean(relevant);
}

enum class Side { left, right, both };

template <Side Where>
Result<Value> justified(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("the padding method", arguments, {"width", "fillchar"}, 1));
  HEXLM_ASSIGN(const int64_t width, bound.integer(0, 0));
  HEXLM_ASSIGN(const Text* fill, bound.text(1));
  if (fill != nullptr && count_code_points(fill->bytes) != 1) {
    return fail(ErrorCode::bad_input, "the fill character must be one character");
  }
  const std::string& text = text_of(self).bytes;
  const std::string_view filler = fill == nullptr ? std::string_view(" ") : std::string_view(fill->bytes);
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(count_code_points(text)), 0);
  if (!budget.room(static_cast<uint64_t>(missing) * filler.size())) return Value();
  // Of an odd number, str.center puts the extra one on the left if the width is odd, too.
  int64_t left = Where == Side::left ? 0 : missing;
  if (Where == Side::both) left = missing / 2 + (missing & width & 1);
  return like(budget, self, repeat_text(filler, left) + text + repeat_text(filler, missing - left));
}

Result<Value> zero_filled(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("zfill", arguments, {"width"}, 1));
  HEXLM_ASSIGN(const int64_t width, bound.integer(0, 0));
  const std::string& text = text_of(self).bytes;
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(count_code_points(text)), 0);
  if (!budget.room(static_cast<uint64_t>(missing))) return Value();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return like(budget, self, text.substr(0, sign) + repeat_text("0", missing) + text.substr(sign));
}

template <bool Suffix>
Result<Value> without_affix(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("removeprefix/removesuffix", arguments, {"affix"}, 1));
  HEXLM_ASSIGN(const Text* affix, bound.text(0));
  std::string_view text = text_of(self).bytes;
  if (Suffix && text.ends_with(affix->bytes)) text.remove_suffix(affix->bytes.size());
  if (!Suffix && text.starts_with(affix->bytes)) text.remove_prefix(affix->bytes.size());
  return like(budget, self, std::string(text));
}

template <bool Last>
Result<Value> partition(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("partition", arguments, {"sep"}, 1));
  HEXLM_ASSIGN(const Text* separator, bound.text(0));
  if (separator->bytes.empty()) return fail(ErrorCode::bad_input, "partition got an empty separator");
  const std::string& text = text_of(self).bytes;
  budget.spend_bytes(text.size());
  if (!Searcher::affordable(budget, separator->bytes)) return Value();
  const Searcher searcher(separator->bytes);
  const size_t found = Last ? searcher.find_last(text) : searcher.find(text);
  std::vector<Value> parts;
  if (found != std::string::npos) {
    parts = {like(budget, self, text.substr(0, found)), like(budget, self, separator->bytes),
             like(budget, self, text.substr(found + separator->bytes.size()))};
  } else {
    parts = {like(budget, self, Last ? "" : text), like(budget, self, ""),
             like(budget, self, Last ? text : "")};
  }
  return make_sequence(&budget, std::move(parts), Sequence::Kind::tuple);
}

Result<Value> format(Budget& budget, const Value& self, const Arguments& arguments) {
  return format_fields(budget, text_of(self), arguments);
}

struct Entry {
  std::string_view name;
  BoundMethod::Body body;
};

constexpr std::array methods = {
    Entry{"capitalize", mapped<to_capitalized>},
    Entry{"center", justified<Side::both>},
    Entry{"count", search<Search::count>},
    Entry{"endswith", has_affix<true>},
    Entry{"find", search<Search::find>},
    Entry{"format", format},
    Entry{"index", search<Search::index>},
    Entry{"isalnum", tested<Test::alphanumeric>},
    Entry{"isalpha", tested<Test::alphabetic>},
    Entry{"isascii", tested<Test::ascii>},
    Entry{"isdecimal", tested<Test::decimal>},
    Entry{"isdigit", tested<Test::digit>},
    Entry{"islower", tested<Test::lower>},
    Entry{"isspace", tested<Test::space>},
    Entry{"isupper", tested<Test::upper>},
    Entry{"join", join},
    Entry{"ljust", justified<Side::left>},
    Entry{"lower", mapped<to_lower>},
    Entry{"lstrip", stripped<true, false>},
    Entry{"partition", partition<false>},
    Entry{"removeprefix", without_affix<false>},
    Entry{"removesuffix", without_affix<true>},
    Entry{"replace", replace},
    Entry{"rfind", search<Search::find_last>},
    Entry{"rindex", search<Search::index_last>},
    Entry{"rjust", justified<Side::right>},
    Entry{"rpartition", partition<true>},
    Entry{"rsplit", split<true>},
    Entry{"rstrip", stripped<false, true>},
    Entry{"split", split<false>},
    Entry{"splitlines", split_into_lines},
    Entry{"startswith", has_affix<false>},
    Entry{"strip", stripped<true, true>},
    Entry{"swapcase", mapped<swap_case>},
    Entry{"title", mapped<to_title>},
    Entry{"upper", mapped<to_upper>},
    Entry{"zfill", zero_filled},
};

}  // namespace

BoundMethod::Body find_text_method(std::string_view name) {
  const auto* found =
      std::find_if(methods.begin(), methods.end(), [&](const Entry& e) { return e.name == name; });
  return found == methods.end() ? nullptr : found->body;
}

}  // namespace hexlm::jinja
