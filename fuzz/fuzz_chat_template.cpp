// layer: tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "tokenizer/chat_template.hpp"

namespace {

const nlohmann::ordered_json& context() {
  static const auto json = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be terse."},
      {"role": "user", "content": [{"type": "text", "text": "Grüße"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm",
       "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true], "b": {}}}}]},
      {"role": "tool", "content": "<tool_response>ok</tool_response>"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "x": [3, 1, 2], "s": "Hello Wörld", "d": {"b": 1, "a": "z", "items": 2}, "n": 7, "f": -0.5,
    "add_generation_prompt": true, "bos_token": "<s>"})");
  return json;
}

void check(const hexlm::Error& error) {
  if (error.message.empty() || error.message.find('\n') != std::string::npos) std::abort();
}

}  // namespace

/// Whatever the template: parsing and rendering return, errors are one line, and output is valid UTF-8.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = hexlm::ChatTemplate::parse(source, "fuzz.jinja");
  if (!chat_template) {
    check(chat_template.error());
    return 0;
  }
  const auto rendered = chat_template->render(context());
  if (!rendered) {
    check(rendered.error());
  } else if (!hexlm::is_valid_utf8(*rendered)) {
    std::abort();
  }
  return 0;
}
