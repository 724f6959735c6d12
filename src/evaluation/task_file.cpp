#include "evaluation/task_file.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "evaluation/csv.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

/// Issues that an error message spells out; more say the same again.
constexpr size_t listed_issues = 40;

std::string short_dump(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t longest = 60;
  if (text.size() > longest) text = text.substr(0, longest) + "…";
  return text;
}

/// Collects rows and what is wrong with those that aren't any.
class TaskReader {
 public:
  TaskReader(const std::string& path, Scoring scoring)
      : folder_(fs::path(path).parent_path()), scoring_(scoring) {
    task_.path = path;
  }

  Result<Task> finish() && {
    if (!issues_.empty())
      return tl::unexpected<Error>(task_error(task_.path, task_.rows.size() + issues_.size(), issues_));
    if (task_.rows.empty())
      return fail(ErrorCode::bad_input, fmt::format("{} has no rows", task_.path),
                  "a row is a line {\"prompt\": …, \"expected\": …}");
    return std::move(task_);
  }

  void add(size_t line, const Json& json) {
    TaskRow row;
    row.line = line;
    const std::optional<std::string> problem = read_row(json, row);
    if (problem) {
      issues_.push_back({line, *problem});
    } else {
      task_.rows.push_back(std::move(row));
    }
  }
  void add_issue(size_t line, std::string what) { issues_.push_back({line, std::move(what)}); }

 private:
  using Problem = std::optional<std::string>;

  static Problem read_text(const Json& json, const char* key, bool required, std::string& text) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) {
      if (!required) return std::nullopt;
      return fmt::format("'{}' is missing", key);
    }
    if (!found->is_string()) return fmt::format("'{}' must be a text, got {}", key, short_dump(*found));
    text = found->get<std::string>();
    if (required && text.empty()) return fmt::format("'{}' is empty", key);
    return std::nullopt;
  }

  Problem read_image(const Json& json, TaskRow& row) const {
    if (Problem problem = read_text(json, "image", false, row.image)) return problem;
    if (row.image.empty()) return std::nullopt;
    const fs::path path = folder_ / row.image;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return fmt::format("the image {} does not exist", path.string());
    row.image = path.string();
    return std::nullopt;
  }

  static Problem read_choices(const Json& json, TaskRow& row) {
    const auto found = json.find("choices");
    if (found == json.end() || found->is_null()) return std::nullopt;
    if (!found->is_array() || found->size() < 2) return "'choices' must be a list of at least two texts";
    for (const Json& choice : *found) {
      if (!choice.is_string() || choice.get<std::string>().empty())
        return fmt::format("a choice must be a text that is not empty, got {}", short_dump(choice));
      const auto text = choice.get<std::string>();
      if (std::find(row.choices.begin(), row.choices.end(), text) != row.choices.end())
        return fmt::format("the choice {} is there twice", short_dump(choice));
      row.choices.push_back(text);
    }
    return std::nullopt;
  }

  /// The right choice as its text or its number from 0.
  static Problem find_choice(const Json& expected, TaskRow& row) {
    row.scoring = Scoring::choices;
    if (row.choices.empty()) return "'choices' is missing";
    if (expected.is_number_integer()) {
      const auto index = expected.get<int64_t>();
      if (index < 0 || index >= static_cast<int64_t>(row.choices.size()))
        return fmt::format("'expected' is choice {}, there are 0 to {}", index, row.choices.size() - 1);
      row.expected_choice = static_cast<size_t>(index);
      return std::nullopt;
    }
    const auto found = std::find_if(row.choices.begin(), row.choices.end(), [&](const std::string& choice) {
      return expected.is_string() && choice == expected.get<std::string>();
    });
    if (found == row.choices.end())
      return fmt::format("'expected' must be one of the choices or its number, got {}", short_dump(expected));
    row.expected_choice = static_cast<size_t>(found - row.choices.begin());
    return std::nullopt;
  }

  /// A text where JSON is expected is JSON written as text, as tables have it.
  static Problem read_json_text(TaskRow& row) {
    auto parsed = parse_json(row.expected.get<std::string>(), "expected");
    if (!parsed) return fmt::format("'expected' is no JSON: {}", parsed.error().message);
    row.expected = *std::move(parsed);
    return std::nullopt;
  }

  Problem read_expected(const Json& json, TaskRow& row) const {
    const auto found = json.find("expected");
    if (found == json.end() || found->is_null()) return "'expected' is missing";
    row.expected = *found;
    if (scoring_ == Scoring::choices || (scoring_ == Scoring::automatic && !row.choices.empty()))
      return find_choice(*found, row);
    const bool structured = found->is_object() || found->is_array();
    if (scoring_ == Scoring::text) {
      row.scoring = Scoring::text;
      if (!found->is_string())
        return fmt::format("'expected' must be a text to score texts, got {}", short_dump(*found));
      return std::nullopt;
    }
    if (structured) {
      row.scoring = Scoring::json;
      return std::nullopt;
    }
    if (!found->is_string())
      return fmt::format("'expected' must be a JSON object, a list or a text, got {}", short_dump(*found));
    const bool looks_like_json = found->get<std::string>().starts_with('{');
    row.scoring = scoring_ == Scoring::json || looks_like_json ? Scoring::json : Scoring::text;
    return row.scoring == Scoring::json ? read_json_text(row) : std::nullopt;
  }

  Problem read_row(const Json& json, TaskRow& row) const {
    if (!json.is_object()) return fmt::format("expected a JSON object, got {}", short_dump(json));
    if (Problem problem = read_text(json, "prompt", true, row.prompt)) return problem;
    if (Problem problem = read_text(json, "system", false, row.system)) return problem;
    if (Problem problem = read_image(json, row)) return problem;
    if (Problem problem = read_choices(json, row)) return problem;
    return read_expected(json, row);
  }

  fs::path folder_;
  Scoring scoring_;
  Task task_;
  std::vector<TaskIssue> issues_;
};

void read_json_lines(std::string_view text, TaskReader& reader) {
  size_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const auto json = parse_json(line, "the row");
    if (json) {
      reader.add(number, *json);
    } else {
      reader.add_issue(number, json.error().message);
    }
  }
}

/// Which column means what; −1 for a column that is not there.
struct CsvColumns {
  int prompt = -1;
  int expected = -1;
  int image = -1;
  int system = -1;
  std::vector<int> options;  ///< A, B, C, …
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<CsvColumns> columns_of(const std::vector<std::string>& header) {
  CsvColumns columns;
  for (size_t i = 0; i < header.size(); ++i) {
    const std::string name = lower(header[i]);
    const int index = static_cast<int>(i);
    if (name == "prompt" || name == "question") columns.prompt = index;
    if (name == "expected" || name == "answer") columns.expected = index;
    if (name == "image") columns.image = index;
    if (name == "system") columns.system = index;
    if (name.size() == 1 && name[0] == static_cast<char>('a' + columns.options.size()))
      columns.options.push_back(index);
  }
  if (columns.prompt < 0 || columns.expected < 0) return std::nullopt;
  return columns;
}

/// question, A, B, C, D, answer: the files of MMLU have no header.
CsvColumns columns_without_header(size_t count) {
  CsvColumns columns;
  columns.prompt = 0;
  columns.expected = static_cast<int>(count) - 1;
  for (int i = 1; i + 1 < static_cast<int>(count); ++i) columns.options.push_back(i);
  return columns;
}

/// A question with lettered options, asked so that the answer's letter comes next.
Json row_of(const CsvRecord& record, const CsvColumns& columns) {
  const auto field = [&](int column) { return record.fields[static_cast<size_t>(column)]; };
  Json row = {{"prompt", field(columns.prompt)}, {"expected", field(columns.expected)}};
  if (columns.image >= 0 && !field(columns.image).empty()) row["image"] = field(columns.image);
  if (columns.system >= 0) row["system"] = field(columns.system);
  if (columns.options.empty()) return row;
  std::string prompt = field(columns.prompt);
  for (size_t i = 0; i < columns.options.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    prompt += fmt::format("\n{}. {}", letter, field(columns.options[i]));
    row["choices"].push_back(fmt::format(" {}", letter));
  }
  row["prompt"] = prompt + "\nAnswer:";
  row["expected"] = fmt::format(" {}", field(columns.expected));
  return row;
}

Status read_csv_rows(const std::string& text, const std::string& path, TaskReader& reader) {
  HEXLM_ASSIGN(const std::vector<CsvRecord> records, parse_csv(text, path));
  if (records.empty()) return {};
  const size_t width = records[0].fields.size();
  const auto header = columns_of(records[0].fields);
  if (!header && width < 2) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: line {}: no header names prompt (or question) and expected (or answer)",
                            path, records[0].line));
  }
  const CsvColumns columns = header ? *header : columns_without_header(width);
  for (size_t i = header ? 1 : 0; i < records.size(); ++i) {
    const CsvRecord& record = records[i];
    if (record.fields.size() != width) {
      reader.add_issue(record.line,
                       fmt::format("{} fields, the first line has {}", record.fields.size(), width));
    } else {
      reader.add(record.line, row_of(record, columns));
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(Scoring scoring) {
  switch (scoring) {
    case Scoring::json:
      return "json";
    case Scoring::text:
      return "text";
    case Scoring::choices:
      return "choices";
    case Scoring::automatic:
      break;
  }
  return "auto";
}

Error task_error(const std::string& path, size_t rows, const std::vector<TaskIssue>& issues) {
  std::string message = fmt::format("{}: {} of {} rows can't be used: ", path, issues.size(), rows);
  for (size_t i = 0; i < std::min(issues.size(), listed_issues); ++i) {
    message += fmt::format("{}line {}: {}", i == 0 ? "" : "; ", issues[i].line, issues[i].what);
  }
  if (issues.size() > listed_issues) message += fmt::format("; … {} more", issues.size() - listed_issues);
  return {ErrorCode::bad_input, std::move(message), "nothing was run; correct these rows or remove them"};
}

Result<Task> read_task(const std::string& path, Scoring scoring) {
  HEXLM_ASSIGN(const std::string text, read_file(path));
  TaskReader reader(path, scoring);
  if (lower(fs::path(path).extension().string()) == ".csv") {
    HEXLM_TRY(read_csv_rows(text, path, reader));
  } else {
    read_json_lines(text, reader);
  }
  return std::move(reader).finish();
}

}  // namespace hexlm
