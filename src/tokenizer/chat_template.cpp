#include "tokenizer/chat_template.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/parser.hpp"
#include "tokenizer/jinja/symbols.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm {
namespace {

// The longest templates in use have some 30 KB; the syntax tree takes up to 300 bytes for each byte here.
constexpr size_t max_source_bytes = size_t{1} << 20;

/// One line: whatever a template raises may hold line breaks and control characters, and be as long as any
/// text.
std::string on_one_line(std::string_view text) {
  constexpr size_t longest = 4000;
  std::string line;
  for (size_t position = 0; position < text.size();) {
    if (line.size() > longest) return line + "…";
    const size_t begin = position;
    jinja::next_code_point(text, position);
    const char c = text[begin];
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += text.substr(begin, position - begin);
    }
  }
  return line;
}

Error located(Error error, std::string_view origin, std::string_view source, size_t offset) {
  error.message =
      on_one_line(fmt::format("{}, {}: {}", origin, jinja::describe_position(source, offset), error.message));
  return error;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string origin;
  std::string source;
  jinja::Body body;
  jinja::HiddenNames hidden;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& origin) {
  if (source.size() > max_source_bytes) {
    return fail(ErrorCode::limit,
                fmt::format("{}: a chat template of {} is above the limit of {}", on_one_line(origin),
                            format_bytes(source.size()), format_bytes(max_source_bytes)));
  }
  if (!is_valid_utf8(source)) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the chat template is not valid UTF-8", on_one_line(origin)));
  }
  auto impl = std::make_unique<Impl>();
  impl->origin = origin;
  impl->source = jinja::normalize_source(source);
  size_t offset = 0;
  auto tokens = jinja::tokenize(impl->source, offset);
  if (!tokens) return tl::unexpected<Error>(located(tokens.error(), origin, impl->source, offset));
  jinja::Parser parser(*std::move(tokens));
  auto body = parser.parse();
  if (!body) return tl::unexpected<Error>(located(body.error(), origin, impl->source, parser.offset()));
  impl->body = *std::move(body);
  impl->hidden = jinja::find_hidden_names(impl->body);
  return ChatTemplate(std::move(impl));
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  const std::string origin = on_one_line(impl_->origin);
  if (!context.is_object()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected an object as context, got {}", origin, context.type_name()));
  }
  auto variables = jinja::from_json(context);
  if (!variables) {
    Error error = variables.error();
    error.message = fmt::format("{}: the context: {}", origin, error.message);
    return tl::unexpected<Error>(std::move(error));
  }
  jinja::Interpreter interpreter(*variables->as_mapping());
  auto text = interpreter.render(impl_->body, impl_->hidden);
  if (!text) {
    return tl::unexpected<Error>(
        located(text.error(), impl_->origin, impl_->source, interpreter.error_offset().value_or(0)));
  }
  return text;
}

}  // namespace hexlm
