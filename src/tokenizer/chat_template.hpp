#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace hexlm {

/// A chat template: the Jinja subset of spec F.2, with transformers' environment (trim_blocks, lstrip_blocks,
/// loop controls, `raise_exception`, `strftime_now`, Python's `tojson`).
class ChatTemplate {
 public:
  /// Errors: bad_input with line and column; unsupported for a statement, filter or test outside the subset.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& origin);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `context` is an object: messages, add_generation_prompt, tools, bos_token, enable_thinking, …
  /// Errors: bad_input for what the template raises or a type error (line named); limit when the output
  /// exceeds 64 MB or more than 10 million steps are executed.
  Result<std::string> render(const nlohmann::ordered_json& context) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hexlm
