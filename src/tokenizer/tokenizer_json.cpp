#include "tokenizer/tokenizer_json.hpp"

#include <fmt/format.h>
#include <optional>
#include <simdjson.h>
#include <utility>

#include "tokenizer/tokenizer_json_parts.hpp"

namespace hexlm {
namespace {

namespace ondemand = simdjson::ondemand;

/// In Qwen3's file a token takes about 75 bytes of JSON, its merge included: a first guess at table sizes.
constexpr size_t json_bytes_per_token = 75;

/// Reads the one big object, `model`, field by field, without building a tree of its 300,000 strings.
class ModelReader {
 public:
  explicit ModelReader(size_t json_bytes) {
    vocabulary_.reserve(json_bytes / json_bytes_per_token, json_bytes / 8);
    merges_.reserve(json_bytes / json_bytes_per_token);
  }

  Status read(ondemand::object model) {
    bool merges_precede_vocab = false;
    for (auto field : model) {
      std::string_view key;
      ondemand::value value;
      HEXLM_TRY(json_status(field.unescaped_key().get(key), "model"));
      HEXLM_TRY(json_status(field.value().get(value), "model"));
      if (key == "vocab") {
        HEXLM_TRY(read_vocab(value));
      } else if (key == "merges" && !has_vocab_) {
        merges_precede_vocab = true;
      } else if (key == "merges") {
        HEXLM_TRY(read_merges(value));
      } else {
        HEXLM_TRY(read_setting(key, value));
      }
    }
    if (!has_vocab_) return fail(ErrorCode::bad_input, "field model.vocab is missing");
    if (merges_precede_vocab) {
      ondemand::value value;
      HEXLM_TRY(json_status(model.reset().error(), "model"));
      HEXLM_TRY(json_status(model.find_field_unordered("merges").get(value), "model.merges"));
      HEXLM_TRY(read_merges(value));
    }
    if (!has_merges_) return fail(ErrorCode::bad_input, "field model.merges is missing");
    if (!has_type_) return fail(ErrorCode::bad_input, "field model.type is missing, expected \"BPE\"");
    return {};
  }

  Vocabulary& vocabulary() { return vocabulary_; }
  Result<BytePairEncoder> take() {
    return BytePairEncoder::make(std::move(vocabulary_), std::move(merges_), ignore_merges_);
  }

 private:
  Status read_setting(std::string_view key, ondemand::value value) {
    if (key == "type") {
      std::string_view type;
      HEXLM_TRY(json_status(value.get_string().get(type), "model.type"));
      if (type != "BPE") return unsupported_kind("model.type", type, "\"BPE\"");
      has_type_ = true;
    } else if (key == "ignore_merges") {
      HEXLM_TRY(json_status(value.get_bool().get(ignore_merges_), "model.ignore_merges"));
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      HEXLM_ASSIGN(const bool is_null, is_null_value(value, key));
      if (is_null) return {};
      std::string_view text;
      HEXLM_TRY(json_status(value.get_string().get(text), fmt::format("model.{}", key)));
      if (!text.empty()) return unsupported_kind(fmt::format("model.{}", key), text, "none");
    } else if (key == "dropout") {
      HEXLM_ASSIGN(const bool is_null, is_null_value(value, key));
      if (is_null) return {};
      double dropout = 0;
      HEXLM_TRY(json_status(value.get_double().get(dropout), "model.dropout"));
      if (dropout != 0) return unsupported_kind("model.dropout", fmt::format("{}", dropout), "null");
    }
    // unk_token, fuse_unk and byte_fallback act on characters without a token: with every byte in the
    // vocabulary, which BytePairEncoder demands, there are none.
    return {};
  }

  /// simdjson's own conversion of the answer to bool throws.
  static Result<bool> is_null_value(ondemand::value value, std::string_view key) {
    bool is_null = false;
    HEXLM_TRY(json_status(value.is_null().get(is_null), fmt::format("model.{}", key)));
    return is_null;
  }

  Status read_vocab(ondemand::value value) {
    if (has_vocab_) return fail(ErrorCode::bad_input, "field model.vocab appears twice");
    has_vocab_ = true;
    ondemand::object tokens;
    HEXLM_TRY(json_status(value.get_object().get(tokens), "model.vocab"));
    for (auto field : tokens) {
      std::string_view token;
      int64_t id = 0;
      HEXLM_TRY(json_status(field.unescaped_key().get(token), "model.vocab"));
      HEXLM_TRY(json_status(field.value().get_int64().get(id), "model.vocab"));
      HEXLM_ASSIGN(const int32_t checked, token_id(token, id));
      HEXLM_TRY(vocabulary_.add(token, checked));
    }
    return {};
  }

  Status read_merges(ondemand::value value) {
    if (has_merges_) return fail(ErrorCode::bad_input, "field model.merges appears twice");
    has_merges_ = true;
    ondemand::array merges;
    HEXLM_TRY(json_status(value.get_array().get(merges), "model.merges"));
    for (auto element : merges) {
      ondemand::value merge;
      HEXLM_TRY(json_status(element.get(merge), "model.merges"));
      ondemand::json_type type{};
      HEXLM_TRY(json_status(merge.type().get(type), "model.merges"));
      HEXLM_TRY(type == ondemand::json_type::string ? read_merge_string(merge) : read_merge_pair(merge));
    }
    return {};
  }

  /// "left right", the form of tokenizers before 0.20.
  Status read_merge_string(ondemand::value value) {
    std::string_view text;
    HEXLM_TRY(json_status(value.get_string().get(text), "model.merges"));
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return fail(ErrorCode::bad_input,
                  fmt::format("merge \"{}\" in model.merges, expected two tokens and one space", text));
    }
    return add_merge(text.substr(0, space), text.substr(space + 1));
  }

  /// ["left", "right"]
  Status read_merge_pair(ondemand::value value) {
    std::array<std::string_view, 2> tokens;
    ondemand::array pair;
    HEXLM_TRY(json_status(value.get_array().get(pair), "model.merges"));
    size_t count = 0;
    for (auto element : pair) {
      std::string_view token;
      HEXLM_TRY(json_status(element.get_string().get(token), "model.merges"));
      if (count < tokens.size()) tokens[count] = token;
      ++count;
    }
    if (count != tokens.size()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("a merge of {} tokens in model.merges, expected 2", count));
    }
    return add_merge(tokens[0], tokens[1]);
  }

  Status add_merge(std::string_view left, std::string_view right) {
    HEXLM_ASSIGN(const int32_t left_id, find(left));
    HEXLM_ASSIGN(const int32_t right_id, find(right));
    spelling_.assign(left).append(right);
    HEXLM_ASSIGN(const int32_t merged_id, find(spelling_));
    return merges_.add(left_id, right_id, merged_id);
  }

  Result<int32_t> find(std::string_view spelling) {
    const int32_t id = vocabulary_.find_spelling(spelling, buffer_);
    if (id >= 0) return id;
    return fail(ErrorCode::bad_input,
                fmt::format("token \"{}\" in model.merges is not in model.vocab", spelling));
  }

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool ignore_merges_ = false;
  bool has_type_ = false;
  bool has_vocab_ = false;
  bool has_merges_ = false;
  std::string spelling_;
  std::string buffer_;
};

/// The JSON text of one small value, for a reader that wants it as a tree.
Result<std::string_view> raw_json(ondemand::value value, std::string_view key) {
  ondemand::json_type type{};
  HEXLM_TRY(json_status(value.type().get(type), key));
  std::string_view raw;
  if (type == ondemand::json_type::array) {
    ondemand::array array;
    HEXLM_TRY(json_status(value.get_array().get(array), key));
    HEXLM_TRY(json_status(array.raw_json().get(raw), key));
  } else if (type == ondemand::json_type::object) {
    ondemand::object object;
    HEXLM_TRY(json_status(value.get_object().get(object), key));
    HEXLM_TRY(json_status(object.raw_json().get(raw), key));
  } else {
    raw = value.raw_json_token();
  }
  return raw;
}

Status read_part(std::string_view key, std::string_view raw, TokenizerParts& parts) {
  simdjson::dom::parser parser;
  simdjson::dom::element part;
  HEXLM_TRY(json_status(parser.parse(raw.data(), raw.size(), true).get(part), key));
  if (key == "added_tokens") return read_added_tokens(part, parts);
  if (key == "normalizer") return read_normalizer(part, parts);
  if (key == "pre_tokenizer") return read_pre_tokenizer(part, parts);
  if (key == "post_processor") return read_post_processor(part, parts);
  return read_decoder(part, parts);
}

bool is_part(std::string_view key) {
  return key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" || key == "post_processor" ||
         key == "decoder";
}

/// Gives every added token its place in the vocabulary.
Status add_added_tokens(const std::vector<AddedToken>& tokens, Vocabulary& vocabulary) {
  std::string buffer;
  for (const AddedToken& token : tokens) {
    const int32_t id = vocabulary.find_spelling(token.content, buffer);
    if (id == token.id) continue;
    if (id >= 0) {
      return fail(ErrorCode::bad_input,
                  fmt::format("added token \"{}\" has id {}, but the vocabulary has it at {}", token.content,
                              token.id, id));
    }
    HEXLM_TRY(vocabulary.add_literal(token.content, token.id));
  }
  return {};
}

Status check_template_ids(const std::vector<int32_t>& ids, const Vocabulary& vocabulary) {
  for (const int32_t id : ids) {
    if (!vocabulary.contains(id)) {
      return fail(ErrorCode::bad_input, fmt::format("post_processor adds id {}, which no token has", id));
    }
  }
  return {};
}

}  // namespace

Result<TokenizerDefinition> read_tokenizer_json(std::string_view json) {
  const simdjson::padded_string padded(json);
  if (padded.size() != json.size()) {  // how it says that memory ran out
    return fail(ErrorCode::limit, fmt::format("memory ran out while its {} bytes were read", json.size()),
                "free memory");
  }
  ondemand::parser parser;
  ondemand::document document;
  HEXLM_TRY(json_status(parser.iterate(padded).get(document), "the document"));
  ondemand::object fields;
  HEXLM_TRY(json_status(document.get_object().get(fields), "the document"));
  ModelReader model(json.size());
  TokenizerParts parts;
  bool has_model = false;
  for (auto field : fields) {
    std::string_view key;
    ondemand::value value;
    HEXLM_TRY(json_status(field.unescaped_key().get(key), "the document"));
    HEXLM_TRY(json_status(field.value().get(value), "the document"));
    if (key == "model") {
      if (std::exchange(has_model, true)) return fail(ErrorCode::bad_input, "field model appears twice");
      ondemand::object object;
      HEXLM_TRY(json_status(value.get_object().get(object), "model"));
      HEXLM_TRY(model.read(object));
    } else if (is_part(key)) {
      HEXLM_ASSIGN(const std::string_view raw, raw_json(value, key));
      HEXLM_TRY(read_part(key, raw, parts));
    }
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return fail(ErrorCode::bad_input, "there is text after the document's object");
  }
  if (!has_model) return fail(ErrorCode::bad_input, "field model is missing");
  HEXLM_TRY(check_parts(parts));
  HEXLM_TRY(add_added_tokens(parts.added_tokens, model.vocabulary()));
  HEXLM_TRY(check_template_ids(parts.prefix, model.vocabulary()));
  HEXLM_TRY(check_template_ids(parts.suffix, model.vocabulary()));
  HEXLM_ASSIGN(BytePairEncoder encoder, model.take());
  return TokenizerDefinition{
      std::move(encoder),        std::move(parts.added_tokens), parts.nfc,
      std::move(parts.patterns), std::move(parts.prefix),       std::move(parts.suffix)};
}

}  // namespace hexlm
