#pragma once

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "support/test_data.hpp"
#include "tokenizer/chat_template.hpp"

namespace hexlm {

inline std::string read_text(const std::string& name) {
  std::ifstream file(test_data(name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::ordered_json read_json_data(const std::string& name) {
  auto json = nlohmann::ordered_json::parse(read_text(name), nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << name;
  return json;
}

/// Parses and renders in one step.
inline Result<std::string> render(const std::string& source,
                                  const nlohmann::ordered_json& context = nlohmann::ordered_json::object()) {
  HEXLM_ASSIGN(const ChatTemplate chat_template, ChatTemplate::parse(source, "test.jinja"));
  return chat_template.render(context);
}

/// The output, or the error's message and hint, to compare with one text.
inline std::string outcome(const std::string& source,
                           const nlohmann::ordered_json& context = nlohmann::ordered_json::object()) {
  const auto result = render(source, context);
  if (result) return *result;
  const Error& error = result.error();
  return error.hint.empty() ? error.message : error.message + " [" + error.hint + "]";
}

}  // namespace hexlm
