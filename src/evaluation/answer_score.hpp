#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "formats/json.hpp"

namespace hexlm {

/// What comparing an answer's fields with the expected ones found. A field is a leaf: a text, number, truth
/// value or null; those inside lists count for each element.
struct FieldCounts {
  int64_t expected = 0;
  int64_t answered = 0;    ///< fields in the answer
  int64_t correct = 0;     ///< same type and value
  int64_t missing = 0;     ///< expected, and not in the answer
  int64_t wrong_type = 0;  ///< there, but a text for a number, a value for an object, …
  int64_t extra = 0;       ///< in the answer, and not expected

  FieldCounts& operator+=(const FieldCounts& other);
};

struct JsonScore {
  FieldCounts total;
  std::map<std::string, FieldCounts> fields;  ///< by path, "objects[].color"
  int64_t objects_expected = 0;               ///< objects in lists
  int64_t objects_answered = 0;
  int64_t objects_matched = 0;  ///< equal in every field

  /// Every expected field is right and none is superfluous.
  bool exact() const;
  JsonScore& operator+=(const JsonScore& other);
};

/// Compares order-free: keys of objects in any order, elements of lists paired so that most fields agree.
/// Numbers are equal by value (20 and 20.0).
JsonScore score_json(const Json& expected, const Json& answer);
/// An answer that is no JSON: everything expected is missing.
JsonScore score_missing(const Json& expected);

/// The JSON value that an answer is: its whole text but white space, a closed <think> part before it, and a
/// Markdown code fence around it. Nothing when the rest is not one JSON value.
std::optional<Json> parse_answer(std::string_view text);
/// Whether an answer that is no JSON has a JSON object somewhere among other text.
bool holds_json(std::string_view text);

struct TextScore {
  bool exact = false;       ///< equal but for white space around
  bool normalized = false;  ///< equal in lower case, without punctuation, with single spaces
  bool contains = false;    ///< the normalized answer has the normalized expected text in it
};
TextScore score_text(std::string_view expected, std::string_view answer);
/// Lower case, letters, marks and numbers only; anything else becomes one space.
std::string normalize_answer(std::string_view text);

}  // namespace hexlm
