#include <array>
#include <fmt/format.h>
#include <utility>

#include "quantization/gguf_source.hpp"

namespace hexlm {
namespace {

/// How a text is cut into words, by the name that llama.cpp gives the pre-tokenizer.
struct PreTokenizer {
  std::string_view name;
  std::string_view pattern;
  bool composes = false;  ///< NFC first
};
constexpr std::array<PreTokenizer, 3> pre_tokenizers = {{
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true},
    {"qwen35",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
}};

/// tokenizer.ggml.token_type
enum class TokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

class CompanionReader {
 public:
  explicit CompanionReader(const GgufFile& file) : file_(file), origin_(file.file().path()) {}

  Result<GgufCompanions> read() {
    const Json* model = find("model");
    if (model == nullptr || *model == "no_vocab") return std::move(companions_);
    if (*model != "gpt2") return unsupported("tokenizer.ggml.model", *model, "gpt2 (byte-level BPE)");
    HEXLM_ASSIGN(const Json tokenizer, tokenizer_json());
    companions_.files["tokenizer.json"] = dump(tokenizer);
    companions_.files["tokenizer_config.json"] = dump(tokenizer_config());
    const Json* chat = file_.metadata("tokenizer.chat_template");
    if (chat != nullptr && chat->is_string())
      companions_.files["chat_template.jinja"] = chat->get<std::string>();
    Json generation = {{"do_sample", false}};
    for (const auto& [key, id] :
         {std::pair("bos_token_id", "bos_token_id"), std::pair("eos_token_id", "eos_token_id")}) {
      if (const Json* value = find(id); value != nullptr && value->is_number_integer())
        generation[key] = *value;
    }
    companions_.files["generation_config.json"] = dump(generation);
    return std::move(companions_);
  }

 private:
  static std::string dump(const Json& json) {
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  const Json* find(std::string_view key) const {
    return file_.metadata(fmt::format("tokenizer.ggml.{}", key));
  }
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin_, what));
  }
  tl::unexpected<Error> unsupported(const char* key, const Json& got, const char* expected) const {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: metadata '{}' is {}, expected {}", origin_, key,
                            got.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60), expected),
                "use the Hugging Face checkpoint");
  }

  bool flag(std::string_view key) const {
    const Json* value = find(key);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  /// The text of the token that a metadata key names.
  std::optional<std::string> token(std::string_view key) const {
    const Json* id = find(key);
    const Json* tokens = find("tokens");
    if (id == nullptr || !id->is_number_integer() || *id < 0 || tokens == nullptr || *id >= tokens->size()) {
      return std::nullopt;
    }
    const Json& text = (*tokens)[id->get<size_t>()];
    return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
  }

  Result<Json> tokenizer_json() {
    const Json* pre = find("pre");
    const PreTokenizer* splitter = nullptr;
    for (const PreTokenizer& each : pre_tokenizers) {
      if (pre != nullptr && *pre == each.name) splitter = &each;
    }
    if (splitter == nullptr) {
      return unsupported("tokenizer.ggml.pre", pre == nullptr ? Json() : *pre, "qwen2, qwen35 or llama-bpe");
    }
    const Json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", splitter->pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    json["added_tokens"] = Json::array();
    json["normalizer"] = splitter->composes ? Json({{"type", "NFC"}}) : Json();
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
    json["post_processor"] = post_processor(byte_level);
    json["decoder"] = byte_level;
    HEXLM_ASSIGN(Json vocabulary, read_vocabulary(json["added_tokens"]));
    HEXLM_ASSIGN(Json merges, read_merges());
    json["model"] = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", !splitter->composes},
                     {"vocab", std::move(vocabulary)},
                     {"merges", std::move(merges)}};
    return json;
  }

  /// A BOS token before the text where the file asks for one.
  Json post_processor(const Json& byte_level) const {
    const std::optional<std::string> bos = token("bos_token_id");
    if (!flag("add_bos_token") || !bos) return byte_level;
    const Json special = {{"SpecialToken", {{"id", *bos}, {"type_id", 0}}}};
    const Json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    Json json = {{"type", "TemplateProcessing"}};
    json["single"] = Json::array({special, first});
    json["pair"] = Json::array({special, first, special, second});
    json["special_tokens"][*bos] = {
        {"id", *bos}, {"ids", Json::array({*find("bos_token_id")})}, {"tokens", Json::array({*bos})}};
    return json;
  }

  Result<Json> read_vocabulary(Json& added) const {
    const Json* tokens = find("tokens");
    if (tokens == nullptr || !tokens->is_array()) return bad("has no array 'tokenizer.ggml.tokens'");
    const Json* types = find("token_type");
    if (types != nullptr && (!types->is_array() || types->size() != tokens->size())) {
      return bad(fmt::format("'tokenizer.ggml.token_type' does not have {} entries", tokens->size()));
    }
    Json vocabulary = Json::object();
    auto& entries = vocabulary.get_ref<Json::object_t&>();
    entries.reserve(tokens->size());
    for (size_t id = 0; id < tokens->size(); ++id) {
      const Json& text = (*tokens)[id];
      if (!text.is_string()) return bad(fmt::format("token {} is no string", id));
      const int64_t type =
          types == nullptr || !(*types)[id].is_number_integer() ? 1 : (*types)[id].get<int64_t>();
      if (type == static_cast<int64_t>(TokenType::unused)) continue;
      const bool control = type == static_cast<int64_t>(TokenType::control);
      if (control || type == static_cast<int64_t>(TokenType::user_defined)) {
        added.push_back({{"id", id},
                         {"content", text},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", control}});
      } else {
        // Appended, not looked up: an ordered object finds keys by walking. The tokenizer refuses doubles.
        entries.emplace_back(text.get<std::string>(), Json(id));
      }
    }
    return vocabulary;
  }

  Result<Json> read_merges() const {
    const Json* merges = find("merges");
    if (merges == nullptr || !merges->is_array()) return bad("has no array 'tokenizer.ggml.merges'");
    for (const Json& merge : *merges) {
      if (!merge.is_string()) return bad("'tokenizer.ggml.merges' holds something else than strings");
    }
    return *merges;
  }

  Json tokenizer_config() const {
    Json json = {{"add_bos_token", flag("add_bos_token")}};
    for (const auto& [name, key] :
         {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
          std::pair("pad_token", "padding_token_id")}) {
      if (const std::optional<std::string> text = token(key)) json[name] = *text;
    }
    return json;
  }

  const GgufFile& file_;
  const std::string& origin_;
  GgufCompanions companions_;
};

}  // namespace

Result<GgufCompanions> gguf_companions(const GgufFile& file) { return CompanionReader(file).read(); }

}  // namespace hexlm
