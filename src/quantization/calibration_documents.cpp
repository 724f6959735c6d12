#include "quantization/calibration_documents.hpp"

#include <filesystem>
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

  Result<CalibrationDocument> object(const Json& value, size_t number) const {
    const std::string place = fmt::format("{}: object {}", path_, number);
    if (value.is_object()) {
      if (has_text(value, "text")) return CalibrationDocument{value["text"].get<std::string>(), {}};
      if (has_text(value, "instruction") && has_text(value, "output")) return alpaca(value, place);
      if (value.contains("messages") && value["messages"].is_array()) return with_images(value, place);
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

  Result<CalibrationDocument> alpaca(const Json& value, const std::string& place) const {
    std::string user = value["instruction"].get<std::string>();
    if (has_text(value, "input") && !value["input"].get<std::string>().empty()) {
      user += fmt::format("\n{}", value["input"].get<std::string>());
    }
    Json messages = Json::array();
    messages.push_back({{"role", "user"}, {"content", user}});
    messages.push_back({{"role", "assistant"}, {"content", value["output"]}});
    return chat(messages, {}, place);
  }

  /// The files of the messages' image parts: their own, or the next of "images".
  Result<CalibrationDocument> with_images(const Json& value, const std::string& place) const {
    const auto broken = [&](const std::string& why) {
      return fail(ErrorCode::bad_input, fmt::format("{}: {}", place, why),
                  "see docs/quantization.md for the form");
    };
    std::vector<std::string> listed;
    if (value.contains("images")) {
      if (!value["images"].is_array()) return broken("\"images\" is no list of files");
      for (const Json& file : value["images"]) {
        if (!file.is_string()) return broken("\"images\" is no list of files");
        listed.push_back(file.get<std::string>());
      }
    }
    std::vector<std::string> files;
    size_t next = 0;
    for (const Json& message : value["messages"]) {
      if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
      for (const Json& part : message["content"]) {
        if (!part.is_object() || !has_text(part, "type") || part["type"] != "image") continue;
        if (has_text(part, "image")) {
          files.push_back(part["image"].get<std::string>());
        } else if (next < listed.size()) {
          files.push_back(listed[next++]);
        } else {
          return broken(fmt::format("its image {} names no file", files.size() + 1));
        }
      }
    }
    if (next != listed.size())
      return broken(
          fmt::format("{} files in \"images\", {} parts of type image without a file", listed.size(), next));
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    for (std::string& file : files) file = (folder / file).string();
    return chat(value["messages"], std::move(files), place);
  }

  Result<CalibrationDocument> chat(const Json& messages, std::vector<std::string> images,
                                   const std::string& place) const {
    if (tokenizer_.chat_template == nullptr) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{} is a chat, but the model has no chat template", place),
                  "calibrate with plain text");
    }
    Json context = tokenizer_.special_tokens.is_object() ? tokenizer_.special_tokens : Json::object();
    context["messages"] = messages;
    context["add_generation_prompt"] = false;
    auto text = tokenizer_.chat_template->render(context);
    if (text) return CalibrationDocument{*std::move(text), std::move(images)};
    return fail(text.error().code, fmt::format("{}: {}", place, text.error().message), text.error().hint);
  }

  const std::string& path_;
  const CalibrationTokenizer& tokenizer_;
};

Result<std::vector<CalibrationDocument>> read_objects(const std::string& path, const Json& list,
                                                      const CalibrationTokenizer& tokenizer) {
  const DocumentReader reader(path, tokenizer);
  std::vector<CalibrationDocument> documents;
  for (size_t i = 0; i < list.size(); ++i) {
    HEXLM_ASSIGN(CalibrationDocument document, reader.object(list[i], i + 1));
    documents.push_back(std::move(document));
  }
  return documents;
}

Result<std::vector<CalibrationDocument>> read_lines(const std::string& path, std::string_view content,
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
std::vector<CalibrationDocument> read_paragraphs(std::string_view content) {
  std::vector<CalibrationDocument> documents;
  size_t begin = 0;
  while (begin < content.size()) {
    size_t end = content.find("\n\n", begin);
    end = end == std::string_view::npos ? content.size() : content.find_first_not_of('\n', end);
    if (end == std::string_view::npos) end = content.size();
    const std::string_view paragraph = content.substr(begin, end - begin);
    if (paragraph.find_first_not_of(" \t\r\n") != std::string_view::npos)
      documents.push_back({std::string(paragraph), {}});
    begin = end;
  }
  return documents;
}

}  // namespace

Result<std::vector<CalibrationDocument>> read_documents(const std::string& path,
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
  if (first == std::string::npos) return std::vector<CalibrationDocument>();
  return read_paragraphs(content);
}

}  // namespace hexlm
