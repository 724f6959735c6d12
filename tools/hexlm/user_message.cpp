#include "hexlm/user_message.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace hexlm::tool {
namespace {

constexpr std::string_view open_tag = "<img>";
constexpr std::string_view close_tag = "</img>";

/// The next image of a text: `<img>file</img>`, or the model's placeholder.
struct ImagePlace {
  size_t begin = std::string_view::npos;
  size_t end = std::string_view::npos;
  bool is_placeholder = false;
  std::string_view file;
};

ImagePlace find_tag(std::string_view text, size_t from) {
  const size_t open = text.find(open_tag, from);
  if (open == std::string_view::npos) return {};
  const size_t inside = open + open_tag.size();
  const size_t close = text.find(close_tag, inside);
  if (close == std::string_view::npos) return {};  // a tag that nothing closes is text
  return {open, close + close_tag.size(), false, text.substr(inside, close - inside)};
}

ImagePlace find_image(std::string_view text, size_t from, const std::string& placeholder,
                      bool inline_images) {
  const ImagePlace tag = inline_images ? find_tag(text, from) : ImagePlace{};
  const size_t at = placeholder.empty() ? std::string_view::npos : text.find(placeholder, from);
  if (at < tag.begin) return {at, at + placeholder.size(), true, {}};
  return tag;
}

void add_text(UserMessage& message, std::string_view text) {
  if (text.empty()) return;
  const bool joins = !message.parts.empty() && !message.parts.back().is_image;
  if (!joins) message.parts.push_back({false, {}});
  message.parts.back().text += text;
}

void add_image(UserMessage& message, const std::string& file) {
  message.parts.push_back({true, file});
  message.images.push_back(file);
}

std::string without_spaces_around(std::string_view text) {
  constexpr std::string_view spaces = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(spaces), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(spaces) + 1 - begin));
}

/// Placeholders that stand in the text itself, outside of `<img>` tags.
size_t count_placeholders(std::string_view text, const std::string& placeholder, bool inline_images) {
  size_t count = 0;
  for (ImagePlace place = find_image(text, 0, placeholder, inline_images);
       place.end != std::string_view::npos; place = find_image(text, place.end, placeholder, inline_images)) {
    count += place.is_placeholder ? 1 : 0;
  }
  return count;
}

}  // namespace

Json UserMessage::content() const {
  if (images.empty()) return parts.empty() ? Json("") : Json(parts.front().text);
  Json list = Json::array();
  for (const Part& part : parts) {
    if (part.is_image) {
      list.push_back({{"type", "image"}});
    } else {
      list.push_back({{"type", "text"}, {"text", part.text}});
    }
  }
  return list;
}

ImageMarkup image_markup(const Model& model) {
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr || !model.config().vision) return {};
  ImageMarkup markup;
  markup.placeholder = tokenizer->token_bytes(model.config().vision->image_token);
  const auto known = [tokenizer](const char* token) {
    return tokenizer->token_id(token) ? std::string(token) : std::string();
  };
  markup.begin = known("<|vision_start|>");
  markup.end = known("<|vision_end|>");
  return markup;
}

Result<UserMessage> parse_user_message(std::string_view text, const std::vector<std::string>& files,
                                       const std::string& placeholder, bool inline_images) {
  UserMessage message;
  const size_t placeholders = count_placeholders(text, placeholder, inline_images);
  if (placeholders > 0 && placeholders != files.size()) {
    return fail(ErrorCode::usage,
                fmt::format("the prompt has {} {}, and {} image(s) were given for them", placeholders,
                            placeholder, files.size()),
                "give one --image for each, or none in the prompt: images then come before the text");
  }
  if (placeholders == 0) {
    for (const std::string& file : files) add_image(message, file);
  }
  size_t from = 0;
  size_t used = 0;
  while (true) {
    const ImagePlace place = find_image(text, from, placeholder, inline_images);
    if (place.end == std::string_view::npos) break;
    if (place.is_placeholder) {
      add_text(message, text.substr(from, place.end - from));
      message.images.push_back(files[used++]);
    } else {
      add_text(message, text.substr(from, place.begin - from));
      add_image(message, without_spaces_around(place.file));
      message.names_images = true;
    }
    from = place.end;
  }
  add_text(message, text.substr(from));
  return message;
}

}  // namespace hexlm::tool
