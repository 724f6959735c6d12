#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "tokenizer/jinja/object.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

std::string json_real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return represent_real(value);
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonFormat& format) : budget_(budget), format_(format) {}

  Status write(const Value& value, int level) {
    // As for repr: shared parts are written out each time.
    if (!budget_.spend() || !budget_.room(out_.size())) return {};
    if (const Text* text = value.as_text()) {
      write_text(text->bytes);
    } else if (const double* real = value.as_real()) {
      out_ += json_real(*real);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const bool* boolean = value.as_boolean()) {
      out_ += *boolean ? "true" : "false";
    } else if (value.as_integer() != nullptr || value.as_large() != nullptr) {
      out_ += to_text(budget_, value);
    } else if (const Mapping* mapping = value.as_mapping()) {
      return write_mapping(*mapping, level);
    } else {
      const Sequence* sequence = value.as_sequence();
      if (sequence == nullptr ||
          (sequence->kind != Sequence::Kind::list && sequence->kind != Sequence::Kind::tuple)) {
        return fail(ErrorCode::bad_input,
                    value.is_undefined() ? fmt::format("tojson of an undefined value: {}", value.reason())
                                         : fmt::format("'{}' cannot be written as JSON", value.type_name()));
      }
      return write_list(sequence->items, level);
    }
    return {};
  }

  std::string take() { return std::move(out_); }

 private:
  void write_text(std::string_view text) {
    budget_.spend_bytes(text.size());
    out_ += '"';
    for (size_t position = 0; position < text.size();) {
      const size_t start = position;
      const char32_t c = next_code_point(text, position);
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (c < 0x20 || (c > 0x7E && format_.escape_non_ascii)) {
            write_escape(c);
          } else {
            out_ += text.substr(start, position - start);
          }
      }
    }
    out_ += '"';
  }

  void write_escape(char32_t c) {
    if (c > 0xFFFF) {
      const auto rest = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    }
  }

  void break_line(int level) {
    if (!format_.multiline || !budget_.room(out_.size() + format_.indent.size() * static_cast<size_t>(level)))
      return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += format_.indent;
    budget_.spend_bytes(format_.indent.size() * static_cast<size_t>(level));
  }

  void separate(bool first, int level) {
    if (!first) out_ += format_.item_separator;
    budget_.spend_bytes(format_.item_separator.size());
    break_line(level);
  }

  Status write_list(const std::vector<Value>& items, int level) {
    out_ += '[';
    bool first = true;
    for (const Value& item : items) {
      if (budget_.exhausted()) return {};
      separate(first, level + 1);
      first = false;
      HEXLM_TRY(write(item, level + 1));
    }
    if (!first) break_line(level);
    out_ += ']';
    return {};
  }

  Status write_key(const Value& key) {
    if (const Text* text = key.as_text()) {
      write_text(text->bytes);
    } else if (key.as_sequence() != nullptr || key.as_object() != nullptr || key.is_undefined()) {
      return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key in JSON", key.type_name()));
    } else {
      out_ += '"';
      HEXLM_TRY(write(key, 0));
      out_ += '"';
    }
    return {};
  }

  Status write_mapping(const Mapping& mapping, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : mapping.entries) entries.push_back(&entry);
    if (format_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : mapping.entries) keys.push_back(entry.first);
      HEXLM_ASSIGN(const auto order, sorted_order(budget_, keys, false));
      for (size_t i = 0; i < order.size(); ++i) entries[i] = &mapping.entries[order[i]];
    }
    out_ += '{';
    bool first = true;
    for (const auto* entry : entries) {
      if (budget_.exhausted()) return {};
      separate(first, level + 1);
      first = false;
      HEXLM_TRY(write_key(entry->first));
      out_ += format_.key_separator;
      HEXLM_TRY(write(entry->second, level + 1));
    }
    if (!first) break_line(level);
    out_ += '}';
    return {};
  }

  Budget& budget_;
  const JsonFormat& format_;
  std::string out_;
};

}  // namespace

Result<std::string> to_json(Budget& budget, const Value& value, const JsonFormat& format) {
  JsonWriter writer(budget, format);
  HEXLM_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace hexlm::jinja
