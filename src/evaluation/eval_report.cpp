#include "evaluation/eval_report.hpp"

#include <fmt/format.h>
#include <map>

#include "base/hash.hpp"

namespace hexlm {
namespace {

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// What tells two rows apart; the image by its name, so that folders may move.
std::string prompt_hash(const TaskRow& row) {
  const std::string key = row.prompt + "\n" + row.system + "\n" + row.image.substr(row.image.rfind('/') + 1);
  return to_hex(hash64(std::as_bytes(std::span(key))));
}

Json rate_json(const Rate& rate) {
  return {{"count", rate.count},
          {"total", rate.total},
          {"rate", rate.value},
          {"low", rate.low},
          {"high", rate.high}};
}

Json counts_json(const FieldCounts& counts) {
  return {{"expected", counts.expected},
          {"answered", counts.answered},
          {"correct", counts.correct},
          {"missing", counts.missing},
          {"wrong_type", counts.wrong_type},
          {"extra", counts.extra},
          {"accuracy", ratio(counts.correct, counts.expected - counts.missing)},
          {"precision", ratio(counts.correct, counts.answered)},
          {"recall", ratio(counts.correct, counts.expected)}};
}

/// What is wrong with a row, in words.
std::string reason(const TaskRow& row, const RowResult& result) {
  if (result.degeneration) return result.degeneration.detail;
  if (row.scoring == Scoring::choices) return fmt::format("chose \"{}\"", row.choices[result.chosen]);
  if (row.scoring == Scoring::text) {
    if (result.text.normalized) return "equal but for case, punctuation or spaces";
    return result.text.contains ? "contains the expected text among other" : "another text";
  }
  if (!result.parsed) return result.embedded_json ? "JSON among other text" : "no JSON";
  std::string text;
  for (const auto& [path, counts] : result.json.fields) {
    const auto wrong = counts.expected - counts.correct - counts.missing;
    const auto say = [&](int64_t count, const char* what) {
      if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", path, what);
    };
    say(counts.missing, "missing");
    say(counts.wrong_type, "of the wrong type");
    if (counts.wrong_type == 0) say(wrong, "wrong");
    say(counts.extra, "superfluous");
  }
  return text;
}

Json expected_json(const TaskRow& row) {
  if (row.scoring == Scoring::choices) return row.choices[row.expected_choice];
  return row.expected;
}

Json failure_json(const TaskRow& row, const RowResult& result) {
  Json json = {{"line", row.line}, {"prompt", row.prompt}};
  if (!row.image.empty()) json["image"] = row.image;
  json["expected"] = expected_json(row);
  json["answer"] = result.answer;
  json["reason"] = reason(row, result);
  return json;
}

Json row_json(const TaskRow& row, const RowResult& result) {
  Json json = {{"line", row.line},
               {"prompt_hash", prompt_hash(row)},
               {"scoring", to_string(row.scoring)},
               {"correct", result.correct},
               {"answer", result.answer}};
  if (row.scoring == Scoring::choices) {
    for (const ChoiceScore& choice : result.choices) json["log_likelihoods"].push_back(choice.log_likelihood);
    return json;
  }
  json["answer_tokens"] = result.answer_tokens;
  json["finish_reason"] = result.finish_reason;
  json["degenerate"] = to_string(result.degeneration.kind);
  return json;
}

void add_json_part(const EvalSummary& summary, Json& json) {
  if (summary.json_rows == 0) return;
  json["field_accuracy"] = summary.field_accuracy();
  json["field_recall"] = summary.field_recall();
  json["field_precision"] = summary.field_precision();
  json["missing_fields"] = summary.json.total.missing;
  json["wrong_type_fields"] = summary.json.total.wrong_type;
  json["extra_fields"] = summary.json.total.extra;
  json["json_among_text"] = summary.embedded_json;
  for (const auto& [path, counts] : summary.json.fields) json["fields"][path] = counts_json(counts);
  if (summary.json.objects_expected + summary.json.objects_answered > 0) {
    json["objects"] = {{"expected", summary.json.objects_expected},
                       {"answered", summary.json.objects_answered},
                       {"matched", summary.json.objects_matched},
                       {"precision", ratio(summary.json.objects_matched, summary.json.objects_answered)},
                       {"recall", ratio(summary.json.objects_matched, summary.json.objects_expected)}};
  }
}

void add_other_parts(const EvalSummary& summary, Json& json) {
  if (summary.text_rows > 0) {
    json["text"] = {{"exact", rate_json(wilson(summary.text_exact, summary.text_rows))},
                    {"normalized", rate_json(wilson(summary.text_normalized, summary.text_rows))},
                    {"contains", rate_json(wilson(summary.text_contains, summary.text_rows))}};
  }
  if (summary.choice_rows > 0) {
    json["choices"] = {
        {"accuracy", rate_json(wilson(summary.chosen_right, summary.choice_rows))},
        {"accuracy_per_byte", rate_json(wilson(summary.chosen_right_per_byte, summary.choice_rows))}};
  }
}

}  // namespace

double EvalSummary::field_accuracy() const {
  return ratio(json.total.correct, json.total.expected - json.total.missing);
}
double EvalSummary::field_recall() const { return ratio(json.total.correct, json.total.expected); }
double EvalSummary::field_precision() const { return ratio(json.total.correct, json.total.answered); }

EvalSummary summarize(const Task& task, const EvalResult& result) {
  EvalSummary summary;
  for (size_t i = 0; i < task.rows.size(); ++i) {
    const RowResult& row = result.rows[i];
    ++summary.rows;
    summary.correct += row.correct ? 1 : 0;
    summary.degenerate += row.degeneration ? 1 : 0;
    switch (task.rows[i].scoring) {
      case Scoring::json:
        ++summary.json_rows;
        summary.parsed += row.parsed ? 1 : 0;
        summary.embedded_json += row.embedded_json ? 1 : 0;
        summary.json += row.json;
        break;
      case Scoring::choices:
        ++summary.choice_rows;
        summary.chosen_right += row.correct ? 1 : 0;
        summary.chosen_right_per_byte += row.chosen_per_byte == task.rows[i].expected_choice ? 1 : 0;
        break;
      case Scoring::text:
      case Scoring::automatic:
        ++summary.text_rows;
        summary.text_exact += row.text.exact ? 1 : 0;
        summary.text_normalized += row.text.normalized ? 1 : 0;
        summary.text_contains += row.text.contains ? 1 : 0;
        break;
    }
  }
  return summary;
}

Json eval_json(const Task& task, const EvalResult& result, const EvalSummary& summary) {
  Json json = {{"rows", summary.rows}, {"parsed", summary.parsed}, {"exact", summary.correct}};
  add_json_part(summary, json);
  add_other_parts(summary, json);
  json["degenerate"] = summary.degenerate;
  if (result.same_answer) json["same_answer"] = result.same_answer.detail;
  json["rates"]["exact"] = rate_json(summary.exact_rate());
  if (summary.json_rows > 0) json["rates"]["parsed"] = rate_json(summary.parse_rate());
  json["rates"]["degenerate"] = rate_json(wilson(summary.degenerate, summary.rows));
  std::map<std::string_view, int64_t> kinds;
  for (const RowResult& row : result.rows) {
    if (row.degeneration) ++kinds[to_string(row.degeneration.kind)];
  }
  json["degenerate_kinds"] = Json::object();
  for (const auto& [kind, count] : kinds) json["degenerate_kinds"][std::string(kind)] = count;
  json["failures"] = Json::array();
  json["results"] = Json::array();
  for (size_t i = 0; i < task.rows.size(); ++i) {
    if (!result.rows[i].correct) json["failures"].push_back(failure_json(task.rows[i], result.rows[i]));
    json["results"].push_back(row_json(task.rows[i], result.rows[i]));
  }
  json["prompt_tokens"] = result.prompt_tokens;
  json["reused_tokens"] = result.reused_tokens;
  json["answer_tokens"] = result.answer_tokens;
  json["seconds"] = result.seconds;
  json["task"] = task.path;
  return json;
}

Result<PairedResult> compare_with(const Json& earlier, const std::string& origin, const Task& task,
                                  const EvalResult& result) {
  const auto bad = [&origin](std::string_view what) {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin, what),
                "give what `hexlm eval --format json` printed for the same task");
  };
  const auto results = earlier.find("results");
  if (!earlier.is_object() || results == earlier.end() || !results->is_array())
    return bad("no list 'results' of an evaluation");
  std::map<size_t, const Json*> by_line;
  for (const Json& row : *results) {
    if (!row.is_object() || !row.contains("line") || !row["line"].is_number_unsigned() ||
        !row.contains("correct") || !row["correct"].is_boolean() || !row.contains("prompt_hash") ||
        !row["prompt_hash"].is_string() || !row.contains("answer") || !row["answer"].is_string())
      return bad("a row of 'results' lacks line, prompt_hash, correct or answer");
    by_line[row["line"].get<size_t>()] = &row;
  }
  PairedResult paired;
  for (size_t i = 0; i < task.rows.size(); ++i) {
    const auto found = by_line.find(task.rows[i].line);
    if (found == by_line.end()) continue;
    const Json& before = *found->second;
    if (before["prompt_hash"] != prompt_hash(task.rows[i]))
      return bad(fmt::format("the prompt of line {} was another one", task.rows[i].line));
    ++paired.pairs;
    const bool was = before["correct"].get<bool>();
    if (was == result.rows[i].correct) continue;
    ++(was ? paired.lost : paired.gained);
    paired.changed.push_back(
        {task.rows[i].line, was, before["answer"].get<std::string>(), result.rows[i].answer});
  }
  if (paired.pairs == 0) return bad("none of its rows is in this task");
  paired.p_value = mcnemar(paired.lost, paired.gained);
  return paired;
}

Json to_json(const PairedResult& paired) {
  Json json = {{"pairs", paired.pairs},
               {"gained", paired.gained},
               {"lost", paired.lost},
               {"p_value", paired.p_value},
               {"significant", paired.p_value < 0.05},
               {"changed", Json::array()}};
  for (const ChangedRow& row : paired.changed) {
    json["changed"].push_back(
        {{"line", row.line}, {"was_correct", row.was_correct}, {"before", row.before}, {"after", row.after}});
  }
  return json;
}

}  // namespace hexlm
