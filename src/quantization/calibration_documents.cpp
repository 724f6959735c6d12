#include "quantization/calibration_documents.hpp"

#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"

namespace hexlm {
namespace {

constexpr uint64_t text_limit = uint64_t{1} << 30;

/// Reads the objects of one file.
class DocumentReader {
 public:
  DocumentReader(const std::string& path, const CalibrationTokenizer& tokenizer)
      : path_(path), tokenizer_(tokenizer) {}

  Result<std::string> object(const Json& value, size_t number) const {
    const std::string place = fmt::format("{}: object {}", path_, number);
    if (value.is_object()) {
      if (has_text(value, "text")) return value["text"].get<std::string>();
      if (has_text(value, "instruction") && has_text(value, "output")) return alpaca(value, place);
      if (value.contains("messages") && value["messages"].is_array()) return chat(value["messages"], place);
    }
    return fail(
        ErrorCode::bad_input,
        fmt::format("{} has neither \"text\", nor \"instruction\" and \"output\", nor \"messages\"", place),
        "one of these forms is needed; see docs/quantization.md");
  }

 private:
  static bool has_text(const Json& object, const char* key) {
    return object.contains(key) && object[key].is_string();
  }

  Result<std::string> alpaca(const Json& value, const std::string& place) const {
    std::string user = value["instruction"].get<std::string>();
    if (has_text(value, "input") && !value["input"].get<std::string>().empty()) {
      user += fmt::format("\n{}", value["input"].get<std::string>());
    }
    Json messages = Json::array();
    messages.push_back({{"role", "user"}, {"content", user}});
    messages.push_back({{"role", "assistant"}, {"content", value["output"]}});
    return chat(messages, place);
  }

  Result<std::string> chat(const Json& messages, const std::string& place) const {
    if (tokenizer_.chat_template == nullptr) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{} is a chat, but the model has no chat template", place),
                  "calibrate with plain text");
    }
    Json context = tokenizer_.special_tokens.is_object() ? tokenizer_.special_tokens : Json::object();
    context["messages"] = messages;
    context["add_generation_prompt"] = false;
    auto text = tokenizer_.chat_template->render(context);
    if (text) return text;
    return fail(text.error().code, fmt::format("{}: {}", place, text.error().message), text.error().hint);
  }

  const std::string& path_;
  const CalibrationTokenizer& tokenizer_;
};

Result<std::vector<std::string>> read_objects(const std::string& path, const Json& list,
                                              const CalibrationTokenizer& tokenizer) {
  const DocumentReader reader(path, tokenizer);
  std::vector<std::string> documents;
  for (size_t i = 0; i < list.size(); ++i) {
    HEXLM_ASSIGN(std::string text, reader.object(list[i], i + 1));
    documents.push_back(std::move(text));
  }
  return documents;
}

Result<std::vector<std::string>> read_lines(const std::string& path, std::string_view content,
                                            const CalibrationTokenizer& tokenizer) {
  Json list = Json::array();
  size_t number = 0;
  for (const std::string_view line : split(content, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    HEXLM_ASSIGN(Json value, parse_json(line, fmt::format("{}:{}", path, number)));
    list.push_back(std::move(value));
  }
  return read_objects(path, list, tokenizer);
}

/// Paragraphs: what blank lines part. Small enough that a file of two languages falls apart into them.
std::vector<std::string> read_paragraphs(std::string_view content) {
  std::vector<std::string> documents;
  size_t begin = 0;
  while (begin < content.size()) {
    size_t end = content.find("\n\n", begin);
    end = end == std::string_view::npos ? content.size() : content.find_first_not_of('\n', end);
    if (end == std::string_view::npos) end = content.size();
    const std::string_view paragraph = content.substr(begin, end - begin);
    if (paragraph.find_first_not_of(" \t\r\n") != std::string_view::npos) documents.emplace_back(paragraph);
    begin = end;
  }
  return documents;
}

}  // namespace

Result<std::vector<std::string>> read_documents(const std::string& path,
                                                const CalibrationTokenizer& tokenizer) {
  HEXLM_ASSIGN(const std::string content, read_file(path, text_limit));
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (path.ends_with(".jsonl")) return read_lines(path, content, tokenizer);
  if (path.ends_with(".json")) {
    HEXLM_ASSIGN(const Json list, parse_json(content, path));
    if (!list.is_array()) {
      return fail(ErrorCode::bad_input, fmt::format("{}: expected an array, got {}", path, list.type_name()),
                  "an array of objects, or a .jsonl file with one a line");
    }
    return read_objects(path, list, tokenizer);
  }
  if (first == std::string::npos) return std::vector<std::string>();
  return read_paragraphs(content);
}

}  // namespace hexlm
