#include "hexlm/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>

#include "base/log.hpp"
#include "base/text.hpp"

namespace hexlm::tool {
namespace {

/// Code points, which is what a terminal aligns by for the scripts that occur in names and numbers.
size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string padding(width - std::min(width, display_width(text)), ' ');
  return right ? padding + text : text + padding;
}

std::vector<size_t> column_widths(const Table& table) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    size_t width = display_width(table.columns[i].title);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  return widths;
}

std::vector<std::string> titles(const Table& table) {
  std::vector<std::string> row;
  row.reserve(table.columns.size());
  for (const Column& column : table.columns) row.push_back(column.title);
  return row;
}

std::string line(const Table& table, const std::vector<std::string>& row, const std::vector<size_t>& widths,
                 std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0) text += separator;
    text += padded(row[i], widths[i], table.columns[i].number);
  }
  return text;
}

std::string without_trailing_spaces(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

/// Of writing to stdout.
int first_failure = 0;

std::string compact(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// What can be done about an error whose place knows no better. Interrupting needs no advice.
std::string_view general_hint(ErrorCode code) {
  switch (code) {
    case ErrorCode::runtime:
      return "if the machine and its disk are well, this is a fault of hexlm: please report the command and "
             "this line";
    case ErrorCode::usage:
      return "`hexlm --help` lists the verbs";
    case ErrorCode::bad_input:
      return "mend or replace that file: download it, or export the package again";
    case ErrorCode::unsupported:
      return "`hexlm --help` and docs/cli.md say what there is";
    case ErrorCode::limit:
      return "use a smaller input or --context, or free memory and disk";
    case ErrorCode::device:
      return "use --backend cpu";
    case ErrorCode::verification:
      return "export the package again; if it fails again, please report it";
    case ErrorCode::interrupted:
      return "";
  }
  return "";
}

}  // namespace

Format format_of(const Arguments& arguments) {
  const std::string name = arguments.text("format");
  if (name == "json") return Format::json;
  if (name == "md") return Format::md;
  if (name == "csv") return Format::csv;
  return name == "jsonl" ? Format::jsonl : Format::text;
}

std::string to_text(const Table& table) {
  const std::vector<size_t> widths = column_widths(table);
  std::string text = without_trailing_spaces(line(table, titles(table), widths, "  ")) + "\n";
  for (const auto& row : table.rows) text += without_trailing_spaces(line(table, row, widths, "  ")) + "\n";
  return text;
}

std::string to_markdown(const Table& table) {
  const std::vector<size_t> widths = column_widths(table);
  std::string text = fmt::format("| {} |\n|", line(table, titles(table), widths, " | "));
  for (size_t i = 0; i < widths.size(); ++i) {
    const bool number = table.columns[i].number;
    text +=
        fmt::format(" {:-<{}}{} |", "", std::max<size_t>(widths[i], 2) - (number ? 1 : 0), number ? ":" : "");
  }
  text += "\n";
  for (const auto& row : table.rows) text += fmt::format("| {} |\n", line(table, row, widths, " | "));
  return text;
}

std::string to_csv(const Table& table) {
  std::string text;
  const auto add = [&text](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += csv_field(row[i]);
    }
    text += "\n";
  };
  add(titles(table));
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print(const Report& report, Format format) {
  switch (format) {
    case Format::text:
      print(report.summary);
      if (!report.table.rows.empty()) print(to_text(report.table));
      return;
    case Format::json:
      print(to_text(report.json));
      return;
    case Format::md:
      print(to_markdown(report.table));
      return;
    case Format::csv:
      print(to_csv(report.table));
      return;
    case Format::jsonl:
      for (const Json& row : report.json[report.rows_key]) print(compact(row) + "\n");
      return;
  }
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && first_failure == 0)
    first_failure = errno;
}

bool stdout_works() {
  if (std::fflush(stdout) != 0 && first_failure == 0) first_failure = errno;
  return first_failure == 0;
}

int stdout_failure() { return first_failure; }

void note(std::string_view text) {
  if (log_level() < LogLevel::info) return;
  const std::string line = fmt::format("{}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void print_error(const Error& error, ErrorStyle style) {
  const std::string hint = error.hint.empty() ? std::string(general_hint(error.code)) : error.hint;
  std::string lines = fmt::format("error: {}\n", one_line(error.message));
  if (!hint.empty()) lines += fmt::format("hint: {}\n", one_line(hint));
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  if (style == ErrorStyle::text) return;
  Json object;
  object["error"] = {{"code", to_string(error.code)}, {"message", error.message}, {"hint", hint}};
  print(style == ErrorStyle::json ? to_text(object) : compact(object) + "\n");
}

}  // namespace hexlm::tool
