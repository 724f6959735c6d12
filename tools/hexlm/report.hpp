#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/arguments.hpp"

namespace hexlm::tool {

enum class Format { text, json, md, csv, jsonl };
Format format_of(const Arguments& arguments);

struct Column {
  std::string title;
  bool number = false;  ///< aligned right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

std::string to_text(const Table& table);
std::string to_markdown(const Table& table);
/// RFC 4180: fields with a comma, quote or line break are quoted.
std::string to_csv(const Table& table);
/// Indented by two; bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);

/// What a verb prints: the whole as JSON, and for people a summary and a table.
struct Report {
  Json json;
  std::string rows_key;  ///< the JSON array that `jsonl` prints a line each; "" for none
  std::string summary;   ///< lines above the table, `text` only
  Table table;
};
void print(const Report& report, Format format);

/// Writes to stdout. The first failure is kept: `stdout_works` and the program's end look at it.
void print(std::string_view text);
/// Writes out what is buffered; false once that, or anything before, failed.
bool stdout_works();
/// The `errno` of the first failure, 0 for none.
int stdout_failure();
/// A note for people on stderr, unless --quiet.
void note(std::string_view text);

/// Whether an error is also an object on stdout, and of one line.
enum class ErrorStyle { text, json, jsonl };
/// `error: …` and `hint: …` on stderr, a line each, and the object that the style asks for. An error without
/// a hint of its own gets one for its kind.
void print_error(const Error& error, ErrorStyle style);

}  // namespace hexlm::tool
