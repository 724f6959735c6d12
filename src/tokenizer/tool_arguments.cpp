#include "tokenizer/tool_arguments.hpp"

#include <string>
#include <utility>

namespace hexlm {
namespace {

using Json = nlohmann::ordered_json;

/// A call is {"function": {"arguments"}}, or {"arguments"} alone.
void parse_arguments(Json& call) {
  if (!call.is_object()) return;
  const auto function = call.find("function");
  Json& holder = function != call.end() ? *function : call;
  const auto found = holder.is_object() ? holder.find("arguments") : holder.end();
  if (found == holder.end() || !found->is_string()) return;
  const auto& text = found->get_ref<const std::string&>();
  Json parsed = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  if (parsed.is_object()) *found = std::move(parsed);
}

}  // namespace

Json with_parsed_tool_arguments(Json context) {
  const auto messages = context.is_object() ? context.find("messages") : context.end();
  if (messages == context.end() || !messages->is_array()) return context;
  for (Json& message : *messages) {
    const auto calls = message.is_object() ? message.find("tool_calls") : message.end();
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) parse_arguments(call);
  }
  return context;
}

}  // namespace hexlm
