#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/registry.hpp"
#include "tokenizer/jinja/represent.hpp"

namespace hexlm::jinja {
namespace {

// Jinja's sandbox refuses longer ranges, too.
constexpr int64_t max_range = 100'000;

/// Items of `range(start, stop, step)`; step is not zero.
uint64_t range_length(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // The distance of two 64-bit integers fits 64 bits without sign.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  return (distance - 1) / stride + 1;
}

Result<Value> make_range(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("range", arguments, {"start", "stop", "step"}, 1));
  HEXLM_ASSIGN(int64_t start, bound.integer(0, 0));
  HEXLM_ASSIGN(int64_t stop, bound.integer(1, 0));
  HEXLM_ASSIGN(const int64_t step, bound.integer(2, 1));
  if (bound[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return fail(ErrorCode::bad_input, "the step of a range is zero");
  const uint64_t length = range_length(start, stop, step);
  if (length > static_cast<uint64_t>(max_range)) {
    return fail(ErrorCode::limit, fmt::format("a range of {} numbers is above {}", length, max_range));
  }
  Budget& budget = interpreter.budget();
  std::vector<Value> items;
  items.reserve(length);
  for (uint64_t i = 0; i < length && budget.spend(); ++i) {
    items.push_back(
        Value::integer(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  Value range = make_sequence(&budget, std::move(items), Sequence::Kind::range);
  auto& bounds = range.as_sequence()->range;
  bounds[0] = start;
  bounds[1] = stop;
  bounds[2] = step;
  return range;
}

/// The entries of `dict(…)` and `namespace(…)`: a dict or pairs, then keyword arguments.
Result<Mapping::Entries> read_entries(Interpreter& interpreter, std::string_view function,
                                      const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  Mapping::Entries entries;
  if (arguments.positional.size() > 1) {
    return fail(ErrorCode::bad_input, fmt::format("{} takes at most one positional argument", function));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const Mapping* mapping = source.as_mapping()) {
      budget.spend(mapping->entries.size());
      entries = mapping->entries;
    } else {
      HEXLM_ASSIGN(const std::vector<Value> pairs, iterate(budget, source));
      for (const Value& pair : pairs) {
        HEXLM_ASSIGN(std::vector<Value> parts, iterate(budget, pair));
        if (parts.size() != 2) {
          return fail(ErrorCode::bad_input,
                      fmt::format("{} expects pairs, not {} values", function, parts.size()));
        }
        if (!hash_key(parts[0])) {
          return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key", parts[0].type_name()));
        }
        entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) entries.emplace_back(make_text(&budget, name), value);
  return entries;
}

Result<Value> make_dict(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(auto entries, read_entries(interpreter, "dict", arguments));
  return make_mapping(&interpreter.budget(), std::move(entries));
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(const auto entries, read_entries(interpreter, "namespace", arguments));
  const auto space = std::make_shared<Namespace>();
  interpreter.keep(space);
  for (const auto& [key, value] : entries) {
    const Text* name = key.as_text();
    if (name == nullptr)
      return fail(ErrorCode::bad_input, "the attributes of a namespace have strings as names");
    if (!interpreter.budget().spend(space->attributes().size())) break;
    space->set(name->bytes, value);
  }
  return Value::object(space);
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("raise_exception", arguments, {"message"}, 1));
  return fail(ErrorCode::bad_input,
              fmt::format("the template raised: {}", to_text(interpreter.budget(), *bound[0])));
}

/// Python adds %f, the microseconds, to what the C library knows.
std::string with_microseconds(std::string_view pattern, int64_t microseconds) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      ++i;
      result += pattern[i] == 'f' ? fmt::format("{:06}", microseconds) : std::string{'%', pattern[i]};
    } else {
      result += pattern[i];
    }
  }
  return result;
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("strftime_now", arguments, {"format"}, 1));
  HEXLM_ASSIGN(const Text* pattern, bound.text(0));
  // Far above any date format; bounds the work of strftime.
  constexpr size_t max_pattern = 1000;
  if (pattern->bytes.size() > max_pattern) {
    return fail(ErrorCode::limit,
                fmt::format("a time format of {} bytes is above {}", pattern->bytes.size(), max_pattern));
  }
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  std::tm local{};
  localtime_r(&seconds, &local);
  // The final space tells an empty result from one that did not fit.
  const std::string format = with_microseconds(pattern->bytes, since_epoch % 1'000'000) + " ";
  std::string text(1024, '\0');
  size_t size = 0;
  // Conversions with widths ("%999d") may be longer than this; they are no dates.
  while ((size = std::strftime(text.data(), text.size(), format.c_str(), &local)) == 0) {
    if (text.size() >= size_t{1} << 20) return fail(ErrorCode::limit, "a formatted time exceeds 1 MiB");
    text.resize(text.size() * 4);
  }
  text.resize(size - 1);
  return make_text(&interpreter.budget(), std::move(text));
}

/// `joiner(separator)`: nothing at the first call, the separator at every later one.
class Joiner : public Object {
 public:
  Joiner(Budget& budget, Value separator)
      : separator_(std::move(separator)), hold_(&budget, sizeof(Joiner)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  int depth() const override { return separator_.depth() + 1; }
  Result<Value> call(Interpreter& interpreter, Arguments&&) override {
    if (used_) return separator_;
    used_ = true;
    return make_text(&interpreter.budget(), "");
  }

 private:
  Value separator_;
  bool used_ = false;
  Hold hold_;
};

Result<Value> make_joiner(Interpreter& interpreter, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("joiner", arguments, {"sep"}));
  Budget& budget = interpreter.budget();
  Value separator = bound[0] == nullptr ? make_text(&budget, ", ") : *bound[0];
  return make_object(budget, std::make_shared<Joiner>(budget, std::move(separator)));
}

struct Global {
  std::string_view name;
  Function::Body body;
};

constexpr Global globals[] = {{"dict", make_dict},           {"joiner", make_joiner},
                              {"namespace", make_namespace}, {"raise_exception", raise_exception},
                              {"range", make_range},         {"strftime_now", strftime_now}};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  // Functions have no state, so that all renderings share them.
  static const std::vector<Value> functions = [] {
    std::vector<Value> values;
    for (const Global& global : globals)
      values.push_back(Value::object(std::make_shared<Function>(global.body)));
    return values;
  }();
  for (size_t i = 0; i < functions.size(); ++i) {
    if (globals[i].name == name) return functions[i];
  }
  return std::nullopt;
}

}  // namespace hexlm::jinja
