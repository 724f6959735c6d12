#pragma once

#include <nlohmann/json.hpp>

namespace hexlm {

/// A template context whose messages' tool calls carry their `arguments` as objects. Clients of the OpenAI
/// interface send them as JSON text, which templates that walk over them can't take and others would quote a
/// second time (spec F.2, pitfall 4). Empty text is an object without members; text that is no JSON object
/// stays as it is, for the template to judge.
nlohmann::ordered_json with_parsed_tool_arguments(nlohmann::ordered_json context);

}  // namespace hexlm
