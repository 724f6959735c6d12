#include "tokenizer/jinja/format.hpp"

#include <fmt/format.h>

#include "tokenizer/jinja/format_specification.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

tl::unexpected<Error> incomplete() { return fail(ErrorCode::bad_input, "a format ends within a field"); }

Value escaped_if(Budget& budget, bool markup, const Value& value) {
  const Text* text = value.as_text();
  return markup && text != nullptr && !text->markup ? escape_markup(budget, text->bytes) : value;
}

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, const Text& text, const Value& values)
      : budget_(budget), text_(text.bytes), markup_(text.markup), values_(values) {
    const Sequence* sequence = values.as_sequence();
    if (sequence != nullptr && sequence->kind == Sequence::Kind::tuple) tuple_ = sequence;
  }

  Result<Value> run() {
    while (position_ < text_.size() && !budget_.exhausted()) {
      const size_t next = text_.find('%', position_);
      out_ += text_.substr(position_, next - position_);
      if (next == std::string_view::npos) break;
      position_ = next + 1;
      HEXLM_TRY(convert());
      budget_.spend();
      budget_.room(out_.size());
    }
    const bool left_over = tuple_ != nullptr ? used_ < tuple_->items.size() : used_ == 0 && !has_items();
    if (left_over) return fail(ErrorCode::bad_input, "'%' got more values than its format has");
    return make_text(&budget_, std::move(out_), markup_);
  }

 private:
  /// Python lets such values go unused, since a format might name their items.
  bool has_items() const {
    const Sequence* sequence = values_.as_sequence();
    if (sequence == nullptr) return values_.as_mapping() != nullptr || values_.is_undefined();
    return sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::range;
  }
  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  Result<const Value*> next_value() {
    if (tuple_ == nullptr) {
      if (used_++ == 0) return &values_;
    } else if (used_ < tuple_->items.size()) {
      return &tuple_->items[used_++];
    }
    return fail(ErrorCode::bad_input, "'%' got fewer values than its format has");
  }

  Result<const Value*> named_value() {
    const size_t close = text_.find(')', position_);
    if (close == std::string_view::npos) return incomplete();
    const std::string_view name = text_.substr(position_ + 1, close - position_ - 1);
    position_ = close + 1;
    const Mapping* mapping = values_.as_mapping();
    const Value* value = mapping == nullptr ? nullptr : mapping->find(name);
    if (value == nullptr) return fail(ErrorCode::bad_input, fmt::format("'%' has no value named '{}'", name));
    return value;
  }

  Status read_specification(FormatSpecification& specification) {
    for (;; ++position_) {
      const char flag = peek();
      if (flag == '-') {
        specification.align = '<';
      } else if (flag == '+' || (flag == ' ' && specification.sign == 0)) {
        specification.sign = flag;
      } else if (flag == '#') {
        specification.alternate = true;
      } else if (flag == '0') {
        specification.fill = std::string(1, '0');
      } else {
        break;
      }
    }
    HEXLM_ASSIGN(specification.width, read_number(text_, position_));
    if (peek() == '.') {
      ++position_;
      HEXLM_ASSIGN(specification.precision, read_number(text_, position_));
    }
    specification.type = peek();
    if (specification.type == '\0') return incomplete();
    ++position_;
    const bool texts = specification.type == 's' || specification.type == 'r';
    if (specification.align == '<' || texts) specification.fill = std::string(1, ' ');
    if (specification.align == 0) specification.align = specification.fill == "0" ? '=' : '>';
    return {};
  }

  Status convert() {
    const Value* value = nullptr;
    if (peek() == '(') {
      HEXLM_ASSIGN(value, named_value());
    }
    FormatSpecification specification;
    HEXLM_TRY(read_specification(specification));
    if (specification.type == '%') {
      out_ += '%';
      return {};
    }
    if (value == nullptr) {
      HEXLM_ASSIGN(value, next_value());
    }
    if (specification.type == 'c') specification.type = 's';
    HEXLM_ASSIGN(const std::string shown,
                 format_value(budget_, escaped_if(budget_, markup_, *value), specification));
    out_ += shown;
    return {};
  }

  Budget& budget_;
  std::string_view text_;
  bool markup_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t used_ = 0;
  size_t position_ = 0;
  std::string out_;
};

class FieldFormatter {
 public:
  FieldFormatter(Budget& budget, const Text& text, const Arguments& arguments)
      : budget_(budget), text_(text.bytes), markup_(text.markup), arguments_(arguments) {}

  Result<Value> run() {
    while (position_ < text_.size() && budget_.spend() && budget_.room(out_.size())) {
      const size_t next = text_.find_first_of("{}", position_);
      out_ += text_.substr(position_, next - position_);
      if (next == std::string_view::npos) break;
      position_ = next + 1;
      const bool doubled = position_ < text_.size() && text_[position_] == text_[next];
      if (doubled) {
        out_ += text_[position_++];
      } else if (text_[next] == '}') {
        return fail(ErrorCode::bad_input, "a format has a '}' without its '{'");
      } else {
        HEXLM_TRY(replace_field());
      }
    }
    return make_text(&budget_, std::move(out_), markup_);
  }

 private:
  Status replace_field() {
    const size_t close = text_.find('}', position_);
    if (close == std::string_view::npos) return incomplete();
    std::string_view field = text_.substr(position_, close - position_);
    position_ = close + 1;
    if (field.find('{') != std::string_view::npos) {
      return fail(ErrorCode::unsupported, "fields within fields of a format are not supported");
    }
    FormatSpecification specification;
    const size_t colon = field.find(':');
    if (colon != std::string_view::npos) {
      HEXLM_TRY(read_specification(field.substr(colon + 1), specification));
      field = field.substr(0, colon);
    }
    const size_t mark = field.find('!');
    const std::string_view conversion = mark == std::string_view::npos ? "" : field.substr(mark + 1);
    field = field.substr(0, mark);
    HEXLM_ASSIGN(Value value, find_value(field));
    if (conversion == "r") {
      value = make_text(&budget_, represent(budget_, value));
    } else if (conversion == "s") {
      value = make_text(&budget_, to_text(budget_, value));
    } else if (!conversion.empty()) {
      return fail(ErrorCode::bad_input, fmt::format("a format has no conversion '!{}'", conversion));
    }
    HEXLM_ASSIGN(const std::string shown,
                 format_value(budget_, escaped_if(budget_, markup_, value), specification));
    out_ += shown;
    return {};
  }

  static Status read_specification(std::string_view text, FormatSpecification& specification) {
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    size_t position = 0;
    size_t after_fill = 0;
    if (!text.empty()) next_code_point(text, after_fill);
    if (after_fill < text.size() && is_align(text[after_fill])) {
      specification.fill = text.substr(0, after_fill);
      specification.align = text[after_fill];
      position = after_fill + 1;
    } else if (!text.empty() && is_align(text[0])) {
      specification.align = text[position++];
    }
    const auto peek = [&] { return position < text.size() ? text[position] : '\0'; };
    if (peek() == '+' || peek() == '-' || peek() == ' ') {
      specification.sign = peek() == '-' ? '\0' : peek();
      ++position;
    }
    if (peek() == '#') {
      specification.alternate = true;
      ++position;
    }
    if (peek() == '0' && specification.align == 0) {
      specification.fill = std::string(1, '0');
      specification.align = '=';
    }
    HEXLM_ASSIGN(specification.width, read_number(text, position));
    if (peek() == '.') {
      ++position;
      HEXLM_ASSIGN(specification.precision, read_number(text, position));
    }
    if (position < text.size()) specification.type = text[position++];
    if (position < text.size()) {
      return fail(ErrorCode::unsupported,
                  fmt::format("the format specification '{}' is not supported", text));
    }
    return {};
  }

  Result<Value> first_value(std::string_view name) {
    size_t end = 0;
    HEXLM_ASSIGN(int64_t index, read_number(name, end));
    if (end == name.size()) {
      if (name.empty()) index = static_cast<int64_t>(automatic_++);
      if (static_cast<size_t>(index) < arguments_.positional.size()) {
        return arguments_.positional[static_cast<size_t>(index)];
      }
      return fail(ErrorCode::bad_input, fmt::format("a format has no value {}", index));
    }
    for (const auto& [keyword, value] : arguments_.keyword) {
      if (keyword == name) return value;
    }
    return fail(ErrorCode::bad_input, fmt::format("a format has no value named '{}'", name));
  }

  Result<Value> find_value(std::string_view field) {
    size_t position = std::min(field.find_first_of(".["), field.size());
    HEXLM_ASSIGN(Value value, first_value(field.substr(0, position)));
    while (position < field.size()) {
      const bool item = field[position] == '[';
      const size_t begin = position + 1;
      position = std::min(item ? field.find(']', begin) : field.find_first_of(".[", begin), field.size());
      const std::string_view name = field.substr(begin, position - begin);
      if (item && position == field.size()) return incomplete();
      if (item) ++position;
      size_t end = 0;
      HEXLM_ASSIGN(const int64_t index, read_number(name, end));
      const bool number = item && end == name.size() && !name.empty();
      const Value key = number ? Value::integer(index) : make_text(&budget_, std::string(name));
      HEXLM_ASSIGN(value, item ? get_item(budget_, value, key) : get_attribute(budget_, value, name));
    }
    return value;
  }

  Budget& budget_;
  std::string_view text_;
  bool markup_;
  const Arguments& arguments_;
  size_t automatic_ = 0;
  size_t position_ = 0;
  std::string out_;
};

}  // namespace

Result<Value> format_percent(Budget& budget, const Text& text, const Value& values) {
  return PercentFormatter(budget, text, values).run();
}

Result<Value> format_fields(Budget& budget, const Text& text, const Arguments& arguments) {
  return FieldFormatter(budget, text, arguments).run();
}

}  // namespace hexlm::jinja
