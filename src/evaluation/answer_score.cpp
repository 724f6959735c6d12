#include "evaluation/answer_score.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utf8proc.h>
#include <vector>

#include "evaluation/assignment.hpp"
#include "tokenizer/code_points.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

constexpr std::string_view spaces = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

bool same_type(const Json& a, const Json& b) {
  return a.is_number() == b.is_number() && (a.is_number() || a.type() == b.type());
}

bool is_leaf(const Json& json) { return !json.is_object() && !json.is_array(); }

void count(JsonScore& score, const std::string& path, const FieldCounts& counts) {
  score.total += counts;
  score.fields[path.empty() ? "." : path] += counts;
}

std::string below(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

/// Counts each leaf of `json` as missing, or as superfluous.
void count_leaves(const Json& json, const std::string& path, bool missing, JsonScore& score) {
  // An empty list or object says something too.
  if (is_leaf(json) || json.empty()) {
    count(score, path, missing ? FieldCounts{1, 0, 0, 1, 0, 0} : FieldCounts{0, 1, 0, 0, 0, 1});
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) count_leaves(value, below(path, key), missing, score);
  } else {
    for (const Json& element : json) {
      if (element.is_object()) ++(missing ? score.objects_expected : score.objects_answered);
      count_leaves(element, path + "[]", missing, score);
    }
  }
}

JsonScore compare(const Json& expected, const Json& answer, const std::string& path);

void compare_objects(const Json& expected, const Json& answer, const std::string& path, JsonScore& score) {
  for (const auto& [key, value] : expected.items()) {
    const auto found = answer.find(key);
    if (found == answer.end()) {
      count_leaves(value, below(path, key), true, score);
    } else {
      score += compare(value, *found, below(path, key));
    }
  }
  for (const auto& [key, value] : answer.items()) {
    if (!expected.contains(key)) count_leaves(value, below(path, key), false, score);
  }
}

void compare_lists(const Json& expected, const Json& answer, const std::string& path, JsonScore& score) {
  const std::string inside = path + "[]";
  std::vector<std::vector<double>> gain(expected.size(), std::vector<double>(answer.size(), 0));
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t j = 0; j < answer.size(); ++j) {
      const JsonScore pair = compare(expected[i], answer[j], inside);
      // An equal element is worth more than as many fields spread over others.
      gain[i][j] = static_cast<double>(pair.total.correct) + (pair.exact() ? 0.5 : 0);
    }
  }
  const std::vector<int> partner = best_assignment(gain, answer.size());
  std::vector<bool> taken(answer.size(), false);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].is_object()) ++score.objects_expected;
    if (partner[i] < 0) {
      count_leaves(expected[i], inside, true, score);
      continue;
    }
    const auto j = static_cast<size_t>(partner[i]);
    taken[j] = true;
    const JsonScore pair = compare(expected[i], answer[j], inside);
    if (answer[j].is_object()) ++score.objects_answered;
    if (expected[i].is_object() && pair.exact()) ++score.objects_matched;
    score += pair;
  }
  for (size_t j = 0; j < answer.size(); ++j) {
    if (taken[j]) continue;
    if (answer[j].is_object()) ++score.objects_answered;
    count_leaves(answer[j], inside, false, score);
  }
}

JsonScore compare(const Json& expected, const Json& answer, const std::string& path) {
  JsonScore score;
  if (!same_type(expected, answer)) {
    FieldCounts wrong;
    wrong.wrong_type = 1;
    if (is_leaf(expected)) {
      wrong.expected = 1;
      wrong.answered = is_leaf(answer) ? 1 : 0;
      count(score, path, wrong);
    } else {
      count(score, path, wrong);
      count_leaves(expected, path, true, score);
    }
    // Of a leaf, the one field of each side is counted already.
    if (!is_leaf(expected) || !is_leaf(answer)) count_leaves(answer, path, false, score);
    return score;
  }
  if (!is_leaf(expected) && expected.empty() && answer.empty()) {
    count(score, path, {1, 1, 1, 0, 0, 0});
  } else if (expected.is_object()) {
    compare_objects(expected, answer, path, score);
  } else if (expected.is_array()) {
    compare_lists(expected, answer, path, score);
  } else {
    count(score, path, {1, 1, expected == answer ? 1 : 0, 0, 0, 0});
  }
  return score;
}

/// The text inside ``` fences, when the fences are all there is around it.
std::string_view inside_fence(std::string_view text) {
  if (!text.starts_with("```") || !text.ends_with("```") || text.size() < 6) return text;
  const size_t line_end = text.find('\n');
  if (line_end == std::string_view::npos || line_end + 3 > text.size()) return text;
  return trim(text.substr(line_end, text.size() - 3 - line_end));
}

std::string_view after_thinking(std::string_view text) {
  constexpr std::string_view end = "</think>";
  if (!text.starts_with("<think>")) return text;
  const size_t at = text.find(end);
  return at == std::string_view::npos ? text : trim(text.substr(at + end.size()));
}

}  // namespace

FieldCounts& FieldCounts::operator+=(const FieldCounts& other) {
  expected += other.expected;
  answered += other.answered;
  correct += other.correct;
  missing += other.missing;
  wrong_type += other.wrong_type;
  extra += other.extra;
  return *this;
}

bool JsonScore::exact() const {
  return total.correct == total.expected && total.answered == total.expected && total.wrong_type == 0 &&
         objects_expected == objects_answered;
}

JsonScore& JsonScore::operator+=(const JsonScore& other) {
  total += other.total;
  for (const auto& [path, counts] : other.fields) fields[path] += counts;
  objects_expected += other.objects_expected;
  objects_answered += other.objects_answered;
  objects_matched += other.objects_matched;
  return *this;
}

JsonScore score_json(const Json& expected, const Json& answer) { return compare(expected, answer, ""); }

JsonScore score_missing(const Json& expected) {
  JsonScore score;
  count_leaves(expected, "", true, score);
  return score;
}

std::optional<Json> parse_answer(std::string_view text) {
  auto parsed = parse_json(inside_fence(after_thinking(trim(text))), "the answer");
  if (!parsed) return std::nullopt;
  return *std::move(parsed);
}

bool holds_json(std::string_view text) {
  for (size_t begin = text.find('{'); begin != std::string_view::npos; begin = text.find('{', begin + 1)) {
    for (size_t end = text.rfind('}'); end != std::string_view::npos && end > begin;
         end = text.rfind('}', end - 1)) {
      if (parse_json(text.substr(begin, end - begin + 1), "part")) return true;
    }
  }
  return false;
}

std::string normalize_answer(std::string_view text) {
  std::string valid;
  append_lossy_utf8(text, valid);
  constexpr uint8_t kept = code_point::letter | code_point::number | code_point::mark;
  std::string result;
  for (size_t at = 0; at < valid.size();) {
    const Character character = read_character(valid.data() + at);
    at += character.length;
    if ((code_points()[character.code_point] & kept) == 0) {
      if (!result.empty() && result.back() != ' ') result += ' ';
      continue;
    }
    utf8proc_uint8_t bytes[4];
    const auto size =
        utf8proc_encode_char(utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code_point)), bytes);
    result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  if (result.ends_with(' ')) result.pop_back();
  return result;
}

TextScore score_text(std::string_view expected, std::string_view answer) {
  TextScore score;
  const std::string_view said = after_thinking(trim(answer));
  score.exact = trim(expected) == said;
  const std::string wanted = normalize_answer(expected);
  const std::string got = normalize_answer(said);
  // Punctuation alone normalizes to nothing, which every text contains.
  score.normalized = wanted.empty() ? score.exact : wanted == got;
  score.contains = wanted.empty()
                       ? said.find(trim(expected)) != std::string_view::npos
                       : fmt::format(" {} ", got).find(fmt::format(" {} ", wanted)) != std::string::npos;
  return score;
}

}  // namespace hexlm
