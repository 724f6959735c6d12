#pragma once

#include <cstdint>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/test_data.hpp"
#include "tokenizer/tokenizer.hpp"

namespace hexlm {

using Ids = std::vector<int32_t>;

struct GoldenLine {
  std::string text;
  Ids ids;
  Ids ids_special;  // with add_special_tokens, where the file has them
};

/// The lines {"text", "ids", "ids_special"} of a file below tests/data, as Hugging Face tokenizers 0.23 wrote
/// them.
inline std::vector<GoldenLine> read_golden(const std::string& name) {
  std::ifstream file(test_data(name));
  EXPECT_TRUE(file.good()) << name;
  std::vector<GoldenLine> lines;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) {
      ADD_FAILURE() << name << " line " << lines.size() + 1;
      continue;
    }
    lines.push_back({json["text"].get<std::string>(), json["ids"].get<Ids>(),
                     json.contains("ids_special") ? json["ids_special"].get<Ids>() : Ids{}});
  }
  return lines;
}

inline Tokenizer load_tokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::load(test_data(name));
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    std::terminate();  // nothing after this could run
  }
  return *std::move(tokenizer);
}

inline Ids encode(const Tokenizer& tokenizer, std::string_view text, bool special = false,
                  bool added = true) {
  auto ids = tokenizer.encode(text, special, added);
  if (!ids) ADD_FAILURE() << ids.error().message;
  return ids ? *ids : Ids{};
}

inline void append_code_point(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
             static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

/// How the `vocab` of tokenizer.json spells a byte (GPT-2's byte-level alphabet).
inline std::string byte_spelling(int byte) {
  const auto prints = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int other = 0;
  for (int b = 0; b < byte; ++b) other += prints(b) ? 0 : 1;
  std::string text;
  append_code_point(text, static_cast<uint32_t>(prints(byte) ? byte : 256 + other));
  return text;
}

/// A tokenizer.json of 256 byte tokens (id = byte) and nothing else: tests add to it or spoil it.
inline nlohmann::json byte_tokenizer_json() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_spelling(byte)] = byte;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

inline Tokenizer parse_tokenizer(const nlohmann::json& json) {
  auto tokenizer = Tokenizer::parse(json.dump(), "test");
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    std::terminate();
  }
  return *std::move(tokenizer);
}

}  // namespace hexlm
