#include "tokenizer/tokenizer_json_parts.hpp"

#include <fmt/format.h>

#include "tokenizer/vocabulary.hpp"

namespace hexlm {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

/// The pattern that a ByteLevel pre-tokenizer applies with `use_regex` (GPT-2's).
constexpr std::string_view byte_level_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <class T>
Result<T> get(object fields, std::string_view key, std::string_view where) {
  T value{};
  HEXLM_TRY(json_status(fields[key].get(value), fmt::format("{}.{}", where, key)));
  return value;
}

Result<bool> get_flag(object fields, std::string_view key, bool absent, std::string_view where) {
  element value;
  if (fields[key].get(value) == simdjson::NO_SUCH_FIELD) return absent;
  return get<bool>(fields, key, where);
}

/// The members of a Sequence under `list_key`, or the part itself as the only one; none for null.
Result<std::vector<object>> members(element value, std::string_view list_key, std::string_view where) {
  std::vector<object> out;
  if (value.is_null()) return out;
  object part;
  HEXLM_TRY(json_status(value.get(part), where));
  HEXLM_ASSIGN(const auto type, get<std::string_view>(part, "type", where));
  if (type != "Sequence") {
    out.push_back(part);
    return out;
  }
  HEXLM_ASSIGN(const auto list, get<array>(part, list_key, where));
  for (const element member : list) {
    object fields;
    HEXLM_TRY(json_status(member.get(fields), fmt::format("{}.{}", where, list_key)));
    out.push_back(fields);
  }
  return out;
}

/// A string pattern as a regular expression that matches just it.
std::string quote(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.[]|()?*+{})").find(c) != std::string_view::npos) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

Status read_split(object split, TokenizerParts& parts) {
  constexpr std::string_view where = "pre_tokenizer";
  HEXLM_ASSIGN(const auto behavior, get<std::string_view>(split, "behavior", where));
  // `invert` swaps matches and gaps, which Isolated treats alike.
  if (behavior != "Isolated") return unsupported_kind("pre_tokenizer.behavior", behavior, "\"Isolated\"");
  HEXLM_ASSIGN(const auto pattern, get<object>(split, "pattern", where));
  std::string_view text;
  if (pattern["Regex"].get(text) == simdjson::SUCCESS) {
    parts.patterns.emplace_back(text);
    return {};
  }
  HEXLM_ASSIGN(text, get<std::string_view>(pattern, "String", "pre_tokenizer.pattern"));
  parts.patterns.push_back(quote(text));
  return {};
}

Status read_byte_level(object part, TokenizerParts& parts) {
  HEXLM_ASSIGN(const bool prefix_space, get<bool>(part, "add_prefix_space", "pre_tokenizer"));
  if (prefix_space) return unsupported_kind("pre_tokenizer.add_prefix_space", "true", "false");
  HEXLM_ASSIGN(const bool use_regex, get_flag(part, "use_regex", true, "pre_tokenizer"));
  if (use_regex) parts.patterns.emplace_back(byte_level_pattern);
  return {};
}

Status append_special(object templ, object piece, std::vector<int32_t>& out) {
  constexpr std::string_view where = "post_processor.special_tokens";
  HEXLM_ASSIGN(const auto name, get<std::string_view>(piece, "id", "post_processor.single"));
  HEXLM_ASSIGN(const auto tokens, get<object>(templ, "special_tokens", "post_processor"));
  HEXLM_ASSIGN(const auto token, get<object>(tokens, name, where));
  HEXLM_ASSIGN(const auto ids, get<array>(token, "ids", where));
  for (const element entry : ids) {
    int64_t id = 0;
    HEXLM_TRY(json_status(entry.get(id), where));
    HEXLM_ASSIGN(const int32_t checked, token_id("of the post_processor", id));
    out.push_back(checked);
  }
  return {};
}

Status read_template(object templ, TokenizerParts& parts) {
  constexpr std::string_view where = "post_processor.single";
  HEXLM_ASSIGN(const auto single, get<array>(templ, "single", "post_processor"));
  int texts = 0;
  for (const element entry : single) {
    object piece;
    object special;
    HEXLM_TRY(json_status(entry.get(piece), where));
    if (piece["SpecialToken"].get(special) == simdjson::SUCCESS) {
      HEXLM_TRY(append_special(templ, special, texts == 0 ? parts.prefix : parts.suffix));
      continue;
    }
    HEXLM_ASSIGN(const auto sequence, get<object>(piece, "Sequence", where));
    HEXLM_ASSIGN(const auto id, get<std::string_view>(sequence, "id", where));
    if (id != "A") return unsupported_kind("post_processor.single.Sequence.id", id, "\"A\"");
    ++texts;
  }
  if (texts != 1) {
    return fail(ErrorCode::unsupported,
                fmt::format("post_processor.single holds the text {} times, supported is once", texts));
  }
  return {};
}

}  // namespace

Status json_status(simdjson::error_code error, std::string_view where) {
  if (error == simdjson::SUCCESS) return {};
  if (error == simdjson::MEMALLOC) {
    return fail(ErrorCode::limit, fmt::format("field {}: memory ran out", where), "free memory");
  }
  return fail(ErrorCode::bad_input, fmt::format("field {}: {}", where, simdjson::error_message(error)));
}

tl::unexpected<Error> unsupported_kind(std::string_view where, std::string_view found,
                                       std::string_view expected) {
  return fail(ErrorCode::unsupported, fmt::format("{} is \"{}\", supported is {}", where, found, expected));
}

Result<int32_t> token_id(std::string_view token, int64_t id) {
  if (id >= 0 && id < Vocabulary::max_size) return static_cast<int32_t>(id);
  return fail(ErrorCode::bad_input,
              fmt::format("token \"{}\" has id {}, expected 0 to {}", token, id, Vocabulary::max_size - 1));
}

Status read_added_tokens(element value, TokenizerParts& parts) {
  constexpr std::string_view where = "added_tokens";
  if (value.is_null()) return {};
  array tokens;
  HEXLM_TRY(json_status(value.get(tokens), where));
  for (const element entry : tokens) {
    object fields;
    HEXLM_TRY(json_status(entry.get(fields), where));
    AddedToken token;
    HEXLM_ASSIGN(token.content, get<std::string_view>(fields, "content", where));
    HEXLM_ASSIGN(const int64_t id, get<int64_t>(fields, "id", where));
    HEXLM_ASSIGN(token.single_word, get_flag(fields, "single_word", false, where));
    HEXLM_ASSIGN(token.lstrip, get_flag(fields, "lstrip", false, where));
    HEXLM_ASSIGN(token.rstrip, get_flag(fields, "rstrip", false, where));
    HEXLM_ASSIGN(token.special, get_flag(fields, "special", false, where));
    HEXLM_ASSIGN(token.normalized, get_flag(fields, "normalized", !token.special, where));
    HEXLM_ASSIGN(token.id, token_id(token.content, id));
    if (token.content.empty()) {
      return fail(ErrorCode::bad_input, fmt::format("added token {} has empty content", id));
    }
    parts.added_tokens.push_back(std::move(token));
  }
  return {};
}

Status read_normalizer(element value, TokenizerParts& parts) {
  HEXLM_ASSIGN(const auto list, members(value, "normalizers", "normalizer"));
  for (const object normalizer : list) {
    HEXLM_ASSIGN(const auto type, get<std::string_view>(normalizer, "type", "normalizer"));
    if (type != "NFC") return unsupported_kind("normalizer.type", type, "\"NFC\" or none");
    parts.nfc = true;
  }
  return {};
}

Status read_pre_tokenizer(element value, TokenizerParts& parts) {
  constexpr std::string_view expected = "\"Split\" steps before one \"ByteLevel\"";
  HEXLM_ASSIGN(const auto list, members(value, "pretokenizers", "pre_tokenizer"));
  for (const object step : list) {
    HEXLM_ASSIGN(const auto type, get<std::string_view>(step, "type", "pre_tokenizer"));
    if (parts.has_pre_tokenizer) return unsupported_kind("pre_tokenizer after ByteLevel", type, expected);
    if (type == "Split") {
      HEXLM_TRY(read_split(step, parts));
    } else if (type == "ByteLevel") {
      HEXLM_TRY(read_byte_level(step, parts));
      parts.has_pre_tokenizer = true;
    } else {
      return unsupported_kind("pre_tokenizer.type", type, expected);
    }
  }
  return {};
}

Status read_post_processor(element value, TokenizerParts& parts) {
  HEXLM_ASSIGN(const auto list, members(value, "processors", "post_processor"));
  bool has_template = false;
  for (const object processor : list) {
    HEXLM_ASSIGN(const auto type, get<std::string_view>(processor, "type", "post_processor"));
    if (type == "ByteLevel") continue;  // trims offsets only
    if (type != "TemplateProcessing" || has_template) {
      return unsupported_kind("post_processor.type", type, "\"ByteLevel\" and one \"TemplateProcessing\"");
    }
    has_template = true;
    HEXLM_TRY(read_template(processor, parts));
  }
  return {};
}

Status read_decoder(element value, TokenizerParts& parts) {
  HEXLM_ASSIGN(const auto list, members(value, "decoders", "decoder"));
  for (const object decoder : list) {
    HEXLM_ASSIGN(const auto type, get<std::string_view>(decoder, "type", "decoder"));
    if (type != "ByteLevel") return unsupported_kind("decoder.type", type, "\"ByteLevel\"");
    parts.has_decoder = true;
  }
  return {};
}

Status check_parts(const TokenizerParts& parts) {
  if (!parts.has_pre_tokenizer) {
    return fail(ErrorCode::unsupported,
                "pre_tokenizer has no ByteLevel step, supported is byte-level BPE only");
  }
  if (!parts.has_decoder) {
    return fail(ErrorCode::unsupported, "decoder is not ByteLevel, supported is byte-level BPE only");
  }
  return {};
}

}  // namespace hexlm
