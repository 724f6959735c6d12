#include "evaluation/csv.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace hexlm {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  Result<std::vector<CsvRecord>> read() {
    std::vector<CsvRecord> records;
    while (at_ < text_.size()) {
      CsvRecord record;
      record.line = line_;
      HEXLM_TRY(read_record(record));
      if (record.fields.size() > 1 || !record.fields[0].empty()) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  bool at_line_end() const { return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }

  Status read_record(CsvRecord& record) {
    while (true) {
      HEXLM_ASSIGN(std::string field, read_field());
      record.fields.push_back(std::move(field));
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
        continue;
      }
      if (at_ < text_.size() && text_[at_] == '\r') ++at_;
      if (at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return {};
    }
  }

  Result<std::string> read_field() {
    if (at_ < text_.size() && text_[at_] == '"') return read_quoted();
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string field(text_.substr(at_, end - at_));
    at_ = end;
    return field;
  }

  Result<std::string> read_quoted() {
    const size_t first_line = line_;
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] != '"') {
        if (text_[at_] == '\n') ++line_;
        field += text_[at_];
        continue;
      }
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[++at_];
        continue;
      }
      ++at_;
      if (at_line_end() || text_[at_] == ',') return field;
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: line {}: text follows the closing quote of a field", origin_, line_));
    }
    return fail(ErrorCode::bad_input, fmt::format("{}: line {}: the quote never ends", origin_, first_line));
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
  size_t line_ = 1;
};

}  // namespace

Result<std::vector<CsvRecord>> parse_csv(std::string_view text, const std::string& origin) {
  return CsvReader(text, origin).read();
}

}  // namespace hexlm
