#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "runtime/model.hpp"

namespace hexlm::tool {

/// What a user says in one turn: text with images at their places.
struct UserMessage {
  struct Part {
    bool is_image = false;
    std::string text;  ///< of an image its file
  };
  std::vector<Part> parts;
  /// Image files in the order of their placeholders in the prompt.
  std::vector<std::string> images;
  bool names_images = false;  ///< the text itself named at least one of them

  /// A chat template's `content`: a string, or with images a list of parts as transformers has them.
  Json content() const;
};

/// How a model's prompts show an image (spec B.4), in the words of its tokenizer; all empty for a model
/// without images or tokenizer.
struct ImageMarkup {
  std::string begin;        ///< "<|vision_start|>"
  std::string placeholder;  ///< "<|image_pad|>", once an image
  std::string end;          ///< "<|vision_end|>"
};
ImageMarkup image_markup(const Model& model);

/// Divides `text` at the images written `<img>file</img>`, when `inline_images` says that these are images.
/// `files` are further images: one for each placeholder of the model that stands in the text, or, when there
/// is none, all of them before the text. Errors: usage, naming both numbers, when text with placeholders has
/// more or fewer of them than `files`.
Result<UserMessage> parse_user_message(std::string_view text, const std::vector<std::string>& files,
                                       const std::string& placeholder, bool inline_images);

}  // namespace hexlm::tool
