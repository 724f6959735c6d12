#include "formats/json.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/atomic_file.hpp"

namespace hexlm {
namespace {

constexpr size_t nesting_limit = 256;

/// The offset of the bracket that opens level `nesting_limit` + 1, or npos. Brackets within strings do not
/// count.
size_t too_deep_at(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > nesting_limit) return i;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return std::string_view::npos;
}

/// Builds the document from the parser's events. Members are appended without a search and duplicates found
/// by one sort when the object ends: an ordered object's own look-up would make parsing quadratic.
class DocumentBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) { return add(value) != nullptr; }
  bool string(string_t& value) { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(string_t& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    const auto& members = open_.back()->get_ref<const Json::object_t&>();
    open_.pop_back();
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const auto& [name, value] : members) names.emplace_back(name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return true;
    problem_ = fmt::format("the key '{}' appears twice in one object", *twice);
    return false;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view detail = error.what();  // "[json.exception.parse_error.101] parse error at line 1, …"
    const size_t prefix = detail.find("] ");
    if (prefix != std::string_view::npos) detail.remove_prefix(prefix + 2);
    problem_ = fmt::format("at byte {}: {}", position, detail);
    return false;
  }

  const std::string& problem() const { return problem_; }
  Json take() { return std::move(root_); }

 private:
  template <class Value>
  Json* add(Value&& value) {
    if (open_.empty()) {
      root_ = Json(std::forward<Value>(value));
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& elements = open_.back()->get_ref<Json::array_t&>();
      return &elements.emplace_back(std::forward<Value>(value));
    }
    auto& members = static_cast<Json::object_t::Container&>(open_.back()->get_ref<Json::object_t&>());
    return &members.emplace_back(std::move(key_), Json(std::forward<Value>(value))).second;
  }
  bool open(Json&& container) {
    open_.push_back(add(std::move(container)));
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  std::string problem_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& origin) {
  if (const size_t offset = too_deep_at(text); offset != std::string_view::npos) {
    return fail(ErrorCode::bad_input, fmt::format("{}: JSON nested deeper than {} levels at byte {}", origin,
                                                  nesting_limit, offset));
  }
  DocumentBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: not valid JSON: {}", origin, builder.problem()));
  }
  return builder.take();
}

Result<Json> read_json(const std::string& path, uint64_t limit) {
  HEXLM_ASSIGN(const std::string text, read_file(path, limit));
  return parse_json(text, path);
}

}  // namespace hexlm
