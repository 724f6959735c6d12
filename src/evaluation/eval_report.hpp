#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "evaluation/evaluate.hpp"
#include "evaluation/statistics.hpp"
#include "formats/json.hpp"

namespace hexlm {

/// The counts of an evaluation. Rates over JSON rows, text rows and choice rows are apart, as a task may mix
/// them.
struct EvalSummary {
  int64_t rows = 0;
  int64_t correct = 0;
  int64_t json_rows = 0;
  int64_t parsed = 0;
  int64_t embedded_json = 0;
  JsonScore json;
  int64_t text_rows = 0;
  int64_t text_exact = 0;
  int64_t text_normalized = 0;
  int64_t text_contains = 0;
  int64_t choice_rows = 0;
  int64_t chosen_right = 0;
  int64_t chosen_right_per_byte = 0;
  int64_t degenerate = 0;

  Rate exact_rate() const { return wilson(correct, rows); }
  Rate parse_rate() const { return wilson(parsed, json_rows); }
  /// Right values / fields that were expected and answered.
  double field_accuracy() const;
  /// Right values / expected fields, missing ones and those of answers that are no JSON included.
  double field_recall() const;
  /// Right values / answered fields.
  double field_precision() const;
};

EvalSummary summarize(const Task& task, const EvalResult& result);

/// The JSON result of `hexlm eval` (docs/evaluation.md): counts, rates with intervals, fields, failures and
/// one entry a row. Keys that have nothing to say about the task's rows are left out.
Json eval_json(const Task& task, const EvalResult& result, const EvalSummary& summary);

/// A row that two results judge differently.
struct ChangedRow {
  size_t line = 0;
  bool was_correct = false;
  std::string before;
  std::string after;
};
struct PairedResult {
  int64_t pairs = 0;
  int64_t gained = 0;  ///< wrong before, right now
  int64_t lost = 0;
  double p_value = 1;  ///< McNemar
  std::vector<ChangedRow> changed;
};
/// Compares with an earlier JSON result of the same task; rows are paired by line, and their prompts must be
/// the same. Errors: bad_input naming `origin` when it is no such result.
Result<PairedResult> compare_with(const Json& earlier, const std::string& origin, const Task& task,
                                  const EvalResult& result);
Json to_json(const PairedResult& paired);

}  // namespace hexlm
