#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numbers>

#include "models/gguf.hpp"

namespace hexlm {
namespace {

constexpr int64_t most_layers = 4096;
constexpr int64_t most_size = int64_t{1} << 30;

class GgufConfigReader {
 public:
  explicit GgufConfigReader(const GgufFile& file) : file_(file), origin_(file.file().path()) {}

  Result<Json> read() {
    const Json* name = file_.metadata("general.architecture");
    if (name == nullptr || !name->is_string()) return bad("general.architecture", "a name", name);
    architecture_ = name->get<std::string>();
    HEXLM_TRY(common());
    if (architecture_ == "llama") return llama();
    if (architecture_ == "qwen2") return finish("qwen2", "Qwen2ForCausalLM");
    if (architecture_ == "qwen3") return finish("qwen3", "Qwen3ForCausalLM");
    if (architecture_ == "qwen35") return qwen35();
    return fail(ErrorCode::unsupported,
                fmt::format("{}: architecture '{}', expected llama, qwen2, qwen3 or qwen35", origin_,
                            architecture_.substr(0, 60)),
                "use the Hugging Face checkpoint");
  }

 private:
  tl::unexpected<Error> bad(const std::string& key, std::string_view expected, const Json* got) const {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: metadata '{}': expected {}, got {}", origin_, key, expected,
                            got == nullptr
                                ? "nothing"
                                : got->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
  }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  const Json* find(std::string_view key) const { return file_.metadata(full(key)); }

  Result<int64_t> integer(std::string_view key, int64_t least, int64_t most) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_number_integer() || *value < least || *value > most) {
      return bad(full(key), fmt::format("{} to {}", least, most), value);
    }
    return value->get<int64_t>();
  }

  Result<double> number(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) {
      return bad(full(key), "a finite number", value);
    }
    // Stored as float32: the shortest decimal that means the same is what config.json had.
    const auto single = value->get<float>();
    return std::stod(fmt::format("{}", single));
  }

  Status set_integer(const char* to, std::string_view key, int64_t most = most_size) {
    HEXLM_ASSIGN(config_[to], integer(key, 1, most));
    return {};
  }

  Status common() {
    HEXLM_ASSIGN(int64_t layers, integer("block_count", 1, most_layers));
    // Layers for predicting several tokens come after the others and are not run.
    if (find("nextn_predict_layers") != nullptr) {
      HEXLM_ASSIGN(const int64_t extra, integer("nextn_predict_layers", 0, layers - 1));
      layers -= extra;
    }
    config_["num_hidden_layers"] = layers;
    HEXLM_TRY(set_integer("max_position_embeddings", "context_length"));
    HEXLM_TRY(set_integer("hidden_size", "embedding_length"));
    HEXLM_TRY(set_integer("intermediate_size", "feed_forward_length"));
    HEXLM_TRY(set_integer("num_attention_heads", "attention.head_count", 65536));
    const bool grouped = find("attention.head_count_kv") != nullptr;
    HEXLM_TRY(set_integer("num_key_value_heads", grouped ? "attention.head_count_kv" : "attention.head_count",
                          65536));
    const int64_t heads = config_["num_attention_heads"].get<int64_t>();
    config_["head_dim"] = config_["hidden_size"].get<int64_t>() / heads;
    if (find("attention.key_length") != nullptr)
      HEXLM_TRY(set_integer("head_dim", "attention.key_length", 65536));
    HEXLM_ASSIGN(config_["rms_norm_eps"], number("attention.layer_norm_rms_epsilon"));
    rope_ = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
    if (find("rope.freq_base") != nullptr) {
      HEXLM_ASSIGN(rope_["rope_theta"], number("rope.freq_base"));
    }
    return scaling();
  }

  Status scaling() {
    const Json* type = find("rope.scaling.type");
    if (type == nullptr || *type == "none") return {};
    if (*type != "linear" && *type != "yarn") {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: metadata '{}' is {}, expected linear or yarn", origin_,
                              full("rope.scaling.type"), type->dump().substr(0, 40)));
    }
    rope_["rope_type"] = *type;
    HEXLM_ASSIGN(rope_["factor"], number("rope.scaling.factor"));
    if (*type == "yarn") {
      HEXLM_ASSIGN(rope_["original_max_position_embeddings"],
                   integer("rope.scaling.original_context_length", 1, most_size));
    }
    return {};
  }

  Result<Json> llama() {
    const GgufTensor* factors = file_.find("rope_freqs.weight");
    if (factors != nullptr) HEXLM_TRY(llama3_rope(*factors));
    return finish("llama", "LlamaForCausalLM");
  }

  /// The file holds what each frequency is divided by. Llama 3's rule gives them from four numbers, of which
  /// all published models share three; the fourth is the largest divisor.
  Status llama3_rope(const GgufTensor& tensor) {
    constexpr double low = 1;
    constexpr double high = 4;
    constexpr double context = 8192;
    const auto head = config_["head_dim"].get<int64_t>();
    const auto pairs = static_cast<size_t>(head / 2);
    if (tensor.type != GgufType::f32 || tensor.bytes.size() != pairs * sizeof(float)) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: tensor 'rope_freqs.weight' does not have {} floats", origin_, pairs));
    }
    std::vector<float> stored(pairs);
    std::memcpy(stored.data(), tensor.bytes.data(), tensor.bytes.size());
    const double factor = *std::max_element(stored.begin(), stored.end());
    const auto theta = rope_["rope_theta"].get<double>();
    for (size_t i = 0; i < pairs; ++i) {
      const double wavelength =
          2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head));
      double divisor = factor;
      if (wavelength < context / high) {
        divisor = 1;
      } else if (wavelength <= context / low) {
        const double smooth = (context / wavelength - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      if (!(std::fabs(stored[i] - divisor) <= 1e-4 * divisor)) {
        return fail(ErrorCode::unsupported,
                    fmt::format("{}: frequency factor {} is {}, Llama 3's rule gives {}", origin_, i,
                                stored[i], divisor));
      }
    }
    if (factor == 1) return {};
    rope_["rope_type"] = "llama3";
    rope_["factor"] = factor;
    rope_["low_freq_factor"] = low;
    rope_["high_freq_factor"] = high;
    rope_["original_max_position_embeddings"] = static_cast<int64_t>(context);
    return {};
  }

  Result<Json> qwen35() {
    HEXLM_TRY(set_integer("linear_conv_kernel_dim", "ssm.conv_kernel", 64));
    HEXLM_TRY(set_integer("linear_key_head_dim", "ssm.state_size", 65536));
    HEXLM_TRY(set_integer("linear_num_key_heads", "ssm.group_count", 65536));
    HEXLM_TRY(set_integer("linear_num_value_heads", "ssm.time_step_rank", 65536));
    HEXLM_ASSIGN(const int64_t inner, integer("ssm.inner_size", 1, most_size));
    config_["linear_value_head_dim"] = inner / config_["linear_num_value_heads"].get<int64_t>();
    int64_t interval = 4;
    if (find("full_attention_interval") != nullptr) {
      HEXLM_ASSIGN(interval, integer("full_attention_interval", 1, most_layers));
    }
    Json types = Json::array();
    for (int64_t layer = 0; layer < config_["num_hidden_layers"].get<int64_t>(); ++layer) {
      types.push_back((layer + 1) % interval == 0 ? "full_attention" : "linear_attention");
    }
    config_["layer_types"] = std::move(types);
    HEXLM_ASSIGN(const int64_t rotated, integer("rope.dimension_count", 2, 65536));
    const double factor = static_cast<double>(rotated) / config_["head_dim"].get<double>();
    config_["partial_rotary_factor"] = factor;
    rope_["partial_rotary_factor"] = factor;
    rope_["mrope_interleaved"] = true;
    const Json* sections = find("rope.dimension_sections");
    if (sections != nullptr && sections->is_array() && sections->size() >= 3) {
      rope_["mrope_section"] = Json::array({(*sections)[0], (*sections)[1], (*sections)[2]});
    }
    return finish("qwen3_5_text", "Qwen3_5ForCausalLM");
  }

  Result<Json> finish(const char* type, const char* name) {
    const GgufTensor* table = file_.find("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      return fail(ErrorCode::bad_input, fmt::format("{}: has no matrix 'token_embd.weight'", origin_));
    }
    config_["vocab_size"] = table->shape[0];
    config_["model_type"] = type;
    config_["architectures"] = {name};
    config_["rope_parameters"] = rope_;
    config_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    for (const auto& [key, id] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos_token_id", "tokenizer.ggml.eos_token_id")}) {
      const Json* value = file_.metadata(id);
      if (value != nullptr && value->is_number_integer()) config_[key] = *value;
    }
    return std::move(config_);
  }

  const GgufFile& file_;
  const std::string& origin_;
  std::string architecture_;
  Json config_ = Json::object();
  Json rope_;
};

}  // namespace

Result<Json> gguf_config(const GgufFile& file) { return GgufConfigReader(file).read(); }

}  // namespace hexlm
