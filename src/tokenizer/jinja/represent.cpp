#include "tokenizer/jinja/represent.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

#include "tokenizer/jinja/object.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

class Representer {
 public:
  explicit Representer(Budget& budget) : budget_(budget) {}

  void write(const Value& value) {
    // The output grows with the value's expanded size, which sharing can make exponential in its real size.
    if (!budget_.spend() || !budget_.room(out_.size())) return;
    if (const Text* text = value.as_text()) {
      budget_.spend_bytes(text->bytes.size());
      const std::string shown = represent_text(text->bytes);
      out_ += text->markup ? fmt::format("Markup({})", shown) : shown;
    } else if (const Sequence* sequence = value.as_sequence()) {
      write_sequence(*sequence);
    } else if (const Mapping* mapping = value.as_mapping()) {
      write_mapping(*mapping);
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.as_object() != nullptr) {
      write_object(*value.as_object());
    } else {
      out_ += to_text(budget_, value);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_items(const std::vector<Value>& items) {
    for (size_t index = 0; index < items.size() && !budget_.exhausted(); ++index) {
      if (index > 0) out_ += ", ";
      write(items[index]);
    }
  }

  void write_sequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case Sequence::Kind::list:
        return write_enclosed("[", sequence.items, "]");
      case Sequence::Kind::tuple:
        return write_enclosed("(", sequence.items, sequence.items.size() == 1 ? ",)" : ")");
      case Sequence::Kind::keys:
        return write_enclosed("dict_keys([", sequence.items, "])");
      case Sequence::Kind::values:
        return write_enclosed("dict_values([", sequence.items, "])");
      case Sequence::Kind::items:
        return write_enclosed("dict_items([", sequence.items, "])");
      case Sequence::Kind::iterator:
        out_ += "<generator object>";
        return;
      case Sequence::Kind::range:
        break;
    }
    out_ += fmt::format("range({}, {}", sequence.range[0], sequence.range[1]);
    out_ += sequence.range[2] == 1 ? ")" : fmt::format(", {})", sequence.range[2]);
  }

  void write_enclosed(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    out_ += open;
    write_items(items);
    out_ += close;
  }

  void write_mapping(const Mapping& mapping) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : mapping.entries) {
      if (budget_.exhausted()) return;
      if (!first) out_ += ", ";
      first = false;
      write(key);
      out_ += ": ";
      write(item);
    }
    out_ += '}';
  }

  void write_object(const Object& object) {
    const auto* space = dynamic_cast<const Namespace*>(&object);
    if (space == nullptr) {
      out_ += fmt::format("<{}>", object.type_name());
      return;
    }
    // A namespace may hold itself, unlike any other value.
    if (++namespaces_ > max_namespaces) {
      out_ += "<Namespace {...}>";
    } else {
      out_ += "<Namespace {";
      bool first = true;
      for (const auto& [name, item] : space->attributes()) {
        if (budget_.exhausted()) break;
        out_ += fmt::format("{}{}: ", first ? "" : ", ", represent_text(name));
        first = false;
        write(item);
      }
      out_ += "}>";
    }
    --namespaces_;
  }

  // Each may hold a value of the greatest depth, and all of them lie on the stack at once.
  static constexpr int max_namespaces = 2;
  Budget& budget_;
  std::string out_;
  int namespaces_ = 0;
};

void append_escape(std::string& out, char32_t character) {
  if (character <= 0xFF) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(character));
  } else if (character <= 0xFFFF) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(character));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(character));
  }
}

}  // namespace

std::string represent_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string text;
  if (exponent < 0) {
    text = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto point = static_cast<size_t>(exponent) + 1;
    if (digits.size() < point) digits.append(point - digits.size(), '0');
    text = digits.substr(0, point) + "." + (digits.size() > point ? digits.substr(point) : "0");
  }
  return negative ? "-" + text : text;
}

std::string represent_text(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    switch (c) {
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c == static_cast<char32_t>(quote)) {
          out += '\\';
          out += quote;
        } else if (is_printable(c)) {
          append_code_point(out, c);
        } else {
          append_escape(out, c);
        }
    }
  }
  return out + quote;
}

std::string represent_name(std::string_view name) {
  // Names in use are far shorter, and values that are undefined keep their message.
  constexpr size_t longest = 80;
  const size_t end = byte_offset(name.substr(0, 4 * longest), longest);
  if (end == name.size()) return represent_text(name);
  return represent_text(fmt::format("{}…", name.substr(0, end)));
}

std::string represent(Budget& budget, const Value& value) {
  Representer representer(budget);
  representer.write(value);
  return representer.take();
}

std::string to_text(Budget& budget, const Value& value) {
  if (const Text* text = value.as_text()) {
    budget.spend_bytes(text->bytes.size());
    return text->bytes;
  }
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* boolean = value.as_boolean()) return *boolean ? "True" : "False";
  if (const int64_t* integer = value.as_integer()) return fmt::format("{}", *integer);
  if (const uint64_t* large = value.as_large()) return fmt::format("{}", *large);
  if (const double* real = value.as_real()) return represent_real(*real);
  return represent(budget, value);
}

}  // namespace hexlm::jinja
