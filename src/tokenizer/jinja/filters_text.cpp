#include <array>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/filters.hpp"
#include "tokenizer/jinja/format.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/text_operations.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

bool is_markup(const Value& value) { return value.as_text() != nullptr && value.as_text()->markup; }

template <std::string (*Map)(std::string_view)>
Result<Value> mapped(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the filter", arguments, {}));
  const std::string text = to_text(interpreter.budget(), input);
  // Case mappings grow a text by at most three.
  if (!interpreter.budget().room(text.size() * 3)) return Value();
  return make_text(&interpreter.budget(), Map(text), is_markup(input));
}

/// Words begin behind spaces, hyphens and opening brackets, unlike those of str.title.
std::string title_words(std::string_view text) {
  std::string result;
  bool begins = true;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = next_code_point(text, position);
    const std::string_view character = text.substr(start, position - start);
    const bool separator = is_space(c) || std::string_view("-({[<").find(character) != std::string_view::npos;
    if (separator) {
      result += character;
    } else if (begins) {
      result += to_upper(character);
    } else {
      result += to_lower(character);
    }
    begins = separator;
  }
  return result;
}

Result<Value> title(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("title", arguments, {}));
  const std::string text = to_text(interpreter.budget(), input);
  if (!interpreter.budget().room(text.size() * 3)) return Value();
  return make_text(&interpreter.budget(), title_words(text));
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("trim", arguments, {"chars"}));
  HEXLM_ASSIGN(const Text* characters, bound.optional_text(0));
  const std::string text = to_text(interpreter.budget(), input);
  if (characters != nullptr && !interpreter.budget().room(characters->bytes.size() * sizeof(char32_t)))
    return Value();
  const std::string_view trimmed =
      characters == nullptr ? strip(text, true, true) : strip(text, characters->bytes, true, true);
  return make_text(&interpreter.budget(), std::string(trimmed), is_markup(input));
}

Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}, 2));
  HEXLM_ASSIGN(const auto count, bound.optional_integer(2));
  Budget& budget = interpreter.budget();
  return make_text(&budget, replace_text(budget, to_text(budget, input), to_text(budget, *bound[0]),
                                         to_text(budget, *bound[1]), count.value_or(-1)));
}

Result<Value> to_string(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("string", arguments, {}));
  if (input.as_text() != nullptr) return input;
  return make_text(&interpreter.budget(), to_text(interpreter.budget(), input));
}

Result<Value> safe(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("safe", arguments, {}));
  return make_text(&interpreter.budget(), to_text(interpreter.budget(), input), true);
}

Result<Value> force_escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("escape", arguments, {}));
  return escape_markup(interpreter.budget(), to_text(interpreter.budget(), input));
}

Result<Value> escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (is_markup(input)) return input;
  return force_escape(interpreter, input, arguments);
}

/// The text whose lines `indent` moves in: its line breaks become \n.
Result<std::string> indented(Budget& budget, std::string_view text, std::string_view indention, bool blank) {
  // The line break appended lets a last empty line count as one.
  const std::string terminated = std::string(text) + "\n";
  std::string result;
  bool first = true;
  visit_lines(terminated, false, [&](std::string_view line) {
    const uint64_t added = line.size() + indention.size() + 1;
    if (!budget.room(result.size() + added) || !budget.spend_bytes(added)) return false;
    if (!first) result += '\n';
    if (!first && (blank || !line.empty())) result += indention;
    result += line;
    first = false;
    return true;
  });
  return result;
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("indent", arguments, {"width", "first", "blank"}));
  const Text* text = input.as_text();
  if (text == nullptr) {
    return fail(ErrorCode::bad_input,
                input.is_undefined() ? input.reason()
                                     : fmt::format("indent expects a string, not '{}'", input.type_name()));
  }
  Budget& budget = interpreter.budget();
  std::string indention;
  if (bound[0] != nullptr && bound[0]->as_text() != nullptr) {
    indention = bound[0]->as_text()->bytes;
  } else {
    HEXLM_ASSIGN(const int64_t width, bound.integer(0, 4));
    if (width > 0 && !budget.room(static_cast<uint64_t>(width))) return Value();
    indention = repeat_text(" ", width);
  }
  HEXLM_ASSIGN(std::string result, indented(budget, text->bytes, indention, bound.truth(2, false)));
  if (bound.truth(1, false)) result.insert(0, indention);
  return make_text(&budget, std::move(result), text->markup);
}

Result<Value> center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("center", arguments, {"width"}));
  HEXLM_ASSIGN(const int64_t width, bound.integer(0, 80));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const Value text, to_string(interpreter, input, {}));
  HEXLM_ASSIGN(const Value method, get_attribute(budget, text, "center"));
  return interpreter.call(method, Arguments{{Value::integer(width)}, {}});
}

Result<Value> wordcount(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("wordcount", arguments, {}));
  const std::string text = to_text(interpreter.budget(), input);
  int64_t words = 0;
  bool inside = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    const bool word = c == '_' || is_alphabetic(c) || is_decimal(c);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    return fail(ErrorCode::bad_input, "format takes positional or keyword arguments, not both");
  }
  HEXLM_ASSIGN(const Value text, to_string(interpreter, input, {}));
  if (arguments.keyword.empty()) {
    return format_percent(budget, *text.as_text(),
                          make_sequence(&budget, arguments.positional, Sequence::Kind::tuple));
  }
  Mapping::Entries entries;
  for (const auto& [name, value] : arguments.keyword) entries.emplace_back(make_text(&budget, name), value);
  return format_percent(budget, *text.as_text(), make_mapping(&budget, std::move(entries)));
}

Status read_separators(const Value& value, JsonFormat& format) {
  const Sequence* pair = value.as_sequence();
  const bool texts = pair != nullptr && pair->items.size() == 2 && pair->items[0].as_text() != nullptr &&
                     pair->items[1].as_text() != nullptr;
  if (!texts) return fail(ErrorCode::bad_input, "tojson expects two strings as 'separators'");
  format.item_separator = pair->items[0].as_text()->bytes;
  format.key_separator = pair->items[1].as_text()->bytes;
  return {};
}

Result<Value> tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  // The parameters and their order are those of transformers' override.
  HEXLM_ASSIGN(const Bound bound,
               Bound::bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  Budget& budget = interpreter.budget();
  JsonFormat format;
  format.escape_non_ascii = bound.truth(0, false);
  format.sort_keys = bound.truth(3, false);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    format.multiline = true;
    format.item_separator = std::string(1, ',');
    if (const Text* text = bound[1]->as_text()) {
      format.indent = text->bytes;
    } else {
      HEXLM_ASSIGN(const int64_t width, bound.integer(1, 0));
      if (width > 0 && !budget.room(static_cast<uint64_t>(width))) return Value();
      format.indent = repeat_text(" ", width);
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) HEXLM_TRY(read_separators(*bound[2], format));
  HEXLM_ASSIGN(std::string text, to_json(budget, input, format));
  return make_text(&budget, std::move(text));
}

constexpr std::array filters = {
    Filter{"capitalize", mapped<to_capitalized>},
    Filter{"center", center},
    Filter{"e", escape},
    Filter{"escape", escape},
    Filter{"forceescape", force_escape},
    Filter{"format", format},
    Filter{"indent", indent},
    Filter{"lower", mapped<to_lower>},
    Filter{"replace", replace},
    Filter{"safe", safe},
    Filter{"string", to_string},
    Filter{"title", title},
    Filter{"tojson", tojson},
    Filter{"trim", trim},
    Filter{"upper", mapped<to_upper>},
    Filter{"wordcount", wordcount},
};

}  // namespace

std::span<const Filter> text_filters() { return filters; }

}  // namespace hexlm::jinja
