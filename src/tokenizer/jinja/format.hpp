#pragma once

#include "base/error.hpp"
#include "tokenizer/jinja/object.hpp"
#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

/// `text % values`: conversions s, r, d, i, u, x, X, o, c, e, E, f, F, g, G and %%, with flags, width and
/// precision, of a tuple, a dict (`%(name)s`) or one value. Errors: bad_input for a wrong format or value.
Result<Value> format_percent(Budget& budget, const Text& text, const Value& values);
/// `text.format(…)`: fields by position or name with attributes and items, `!r` and `!s`, and the format
/// specifications of texts and numbers without grouping. Errors: as above.
Result<Value> format_fields(Budget& budget, const Text& text, const Arguments& arguments);

}  // namespace hexlm::jinja
