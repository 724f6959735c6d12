#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"

namespace hexlm {

/// How an answer is judged. `automatic` decides a row by what it holds: `choices` by log-likelihood, an
/// expected object or list as JSON, an expected text as text.
enum class Scoring : uint8_t { automatic, json, text, choices };
std::string_view to_string(Scoring scoring);

/// One labelled question.
struct TaskRow {
  size_t line = 0;  ///< in the file, from 1
  std::string prompt;
  std::string image;                 ///< path of an existing file; "" for none
  std::string system;                ///< "" for none
  Scoring scoring = Scoring::text;   ///< never `automatic`
  Json expected;                     ///< the value (json), or a string (text)
  std::vector<std::string> choices;  ///< texts whose likelihood is compared
  size_t expected_choice = 0;
};

struct Task {
  std::string path;
  std::vector<TaskRow> rows;
};

/// Reads .jsonl rows `{prompt, image?, system?, expected, choices?}` or a .csv (with a header that names
/// question or prompt, and answer or expected, and options as A, B, …; or without one, as MMLU has it:
/// question, A, B, C, D, answer). Image paths are relative to the file. Every row is checked before any is
/// used. Errors: bad_input that lists every bad line with its number and what is wrong with it.
Result<Task> read_task(const std::string& path, Scoring scoring);

/// What is wrong with a row, for the error that lists them all.
struct TaskIssue {
  size_t line = 0;
  std::string what;
};
Error task_error(const std::string& path, size_t rows, const std::vector<TaskIssue>& issues);

}  // namespace hexlm
