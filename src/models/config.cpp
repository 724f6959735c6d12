#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "models/config_reader.hpp"
#include "models/model_config.hpp"
#include "models/registry.hpp"
#include "models/rope_config.hpp"

namespace hexlm {
namespace {

// Several times the largest published model in each direction; they keep products of sizes far from overflow
// and a hostile file from asking for an endless graph.
constexpr int64_t largest_hidden = int64_t{1} << 20;
constexpr int64_t largest_intermediate = int64_t{1} << 22;
constexpr int64_t largest_layers = 4096;
constexpr int64_t largest_heads = 1 << 14;
constexpr int64_t largest_head_dim = 4096;
constexpr int64_t largest_vocabulary = int64_t{1} << 24;
constexpr int64_t largest_positions = int64_t{1} << 31;
constexpr int64_t largest_taps = 256;
constexpr int64_t largest_experts = 4096;
constexpr int64_t largest_expert_total = int64_t{1} << 17;
constexpr int64_t largest_token = largest_vocabulary;
constexpr size_t largest_stop_list = 1024;

class ConfigParser {
 public:
  ConfigParser(const Json& json, const std::string& origin, const ModelFamily& family, const Json& text,
               const std::string& prefix)
      : json_(json),
        text_(text),
        prefix_(prefix),
        origin_(origin),
        family_(family),
        top_(origin, {{&json, ""}}),
        reader_(origin, {{&text, prefix}}) {}

  Result<ModelConfig> run() {
    ModelConfig config;
    config.model_type = family_.model_type;
    config.source = json_;
    config.has_vision = family_.multimodal && member(json_, "vision_config") != nullptr &&
                        !top_.boolean_or("language_model_only", false);
    parse_dtype(config);
    TextConfig& text = config.text;
    text.model_type = family_.text_type;
    refuse_other_maths();
    parse_sizes(text);
    parse_layer_types(text);
    if (family_.delta_net) parse_delta_net(text);
    if (family_.sparse) parse_experts(text);
    parse_tokens(text);
    parse_tie(text);
    HEXLM_TRY(top_.status());
    HEXLM_TRY(reader_.status());
    HEXLM_ASSIGN(text.rope, parse_rope(text_, prefix_, origin_, family_, text.head_dim, text.max_positions,
                                       config.notes));
    return config;
  }

 private:
  void parse_dtype(ModelConfig& config) {
    // `dtype` is the newer spelling and wins; the top level describes the file, the text part only itself.
    config.dtype = top_.string_or("dtype", top_.string_or("torch_dtype", ""));
    if (config.dtype.empty()) config.dtype = reader_.string_or("dtype", reader_.string_or("torch_dtype", ""));
  }

  void parse_sizes(TextConfig& text) {
    text.hidden_size = reader_.integer("hidden_size", 1, largest_hidden);
    text.intermediate_size = reader_.integer("intermediate_size", 1, largest_intermediate);
    text.layers = reader_.integer("num_hidden_layers", 1, largest_layers);
    text.query_heads = reader_.integer("num_attention_heads", 1, largest_heads);
    text.key_value_heads = reader_.integer_or("num_key_value_heads", text.query_heads, 1, largest_heads);
    text.vocabulary_size = reader_.integer("vocab_size", 1, largest_vocabulary);
    text.max_positions = reader_.integer("max_position_embeddings", 1, largest_positions);
    text.norm_epsilon = reader_.number_or("rms_norm_eps", text.norm_epsilon, 1e-20, 1);
    text.attention_bias = reader_.boolean_or("attention_bias", false);
    // Of the families only llama's class reads this key.
    text.mlp_bias = family_.text_type == "llama" && reader_.boolean_or("mlp_bias", false);
    if (text.query_heads % text.key_value_heads != 0) {
      reader_.reject(ErrorCode::bad_input, "num_attention_heads",
                     fmt::format("is {}, expected a multiple of num_key_value_heads, {}", text.query_heads,
                                 text.key_value_heads));
    }
    parse_head_dim(text);
  }

  void parse_head_dim(TextConfig& text) {
    if (!reader_.has("head_dim") && family_.head_dim == 0 && text.hidden_size % text.query_heads != 0) {
      reader_.reject(
          ErrorCode::bad_input, "hidden_size",
          fmt::format("is {}, expected a multiple of num_attention_heads, {}, when head_dim is missing",
                      text.hidden_size, text.query_heads));
    }
    const int64_t fallback = family_.head_dim != 0 ? family_.head_dim : text.hidden_size / text.query_heads;
    text.head_dim = reader_.integer_or("head_dim", fallback, 1, largest_head_dim);
    if (text.head_dim > largest_head_dim || text.head_dim < 2 || text.head_dim % 2 != 0) {
      reader_.reject(
          ErrorCode::bad_input, "head_dim",
          fmt::format("is {}, expected an even number of 2 to {}", text.head_dim, largest_head_dim));
    }
  }

  void parse_layer_types(TextConfig& text) {
    const std::vector<std::string> names = reader_.strings("layer_types", largest_layers);
    if (!reader_.status()) return;
    const auto layers = static_cast<size_t>(text.layers);
    text.layer_types.assign(layers, LayerType::full_attention);
    if (!reader_.has("layer_types")) {
      if (!family_.delta_net) return;
      const int64_t interval = reader_.integer_or("full_attention_interval", 4, 1, largest_layers);
      for (size_t i = 0; i < layers; ++i) {
        if ((static_cast<int64_t>(i) + 1) % interval != 0) text.layer_types[i] = LayerType::linear_attention;
      }
      return;
    }
    if (names.size() != layers) {
      reader_.reject(ErrorCode::bad_input, "layer_types",
                     fmt::format("lists {} layers, expected num_hidden_layers, {}", names.size(), layers));
      return;
    }
    for (size_t i = 0; i < layers; ++i) {
      if (names[i] == "full_attention") continue;
      if (names[i] == "linear_attention" && family_.delta_net) {
        text.layer_types[i] = LayerType::linear_attention;
        continue;
      }
      reader_.reject(
          ErrorCode::unsupported, "layer_types",
          fmt::format("has '{}' at layer {}, expected full_attention{} in {}", names[i].substr(0, 60), i,
                      family_.delta_net ? " or linear_attention" : "", family_.model_type));
      return;
    }
  }

  void parse_delta_net(TextConfig& text) {
    text.linear_key_heads = reader_.integer("linear_num_key_heads", 1, largest_heads);
    text.linear_value_heads = reader_.integer("linear_num_value_heads", 1, largest_heads);
    text.linear_key_dim = reader_.integer("linear_key_head_dim", 1, largest_head_dim);
    text.linear_value_dim = reader_.integer("linear_value_head_dim", 1, largest_head_dim);
    text.convolution_taps =
        reader_.integer_or("linear_conv_kernel_dim", text.convolution_taps, 2, largest_taps);
    if (text.linear_value_heads % text.linear_key_heads != 0) {
      reader_.reject(ErrorCode::bad_input, "linear_num_value_heads",
                     fmt::format("is {}, expected a multiple of linear_num_key_heads, {}",
                                 text.linear_value_heads, text.linear_key_heads));
    }
  }

  void parse_experts(TextConfig& text) {
    // transformers 5 writes num_local_experts where earlier versions wrote num_experts.
    const bool old_key = reader_.has("num_experts");
    const char* key = old_key || !reader_.has("num_local_experts") ? "num_experts" : "num_local_experts";
    text.experts = reader_.integer(key, 0, largest_experts);
    if (old_key &&
        reader_.integer_or("num_local_experts", text.experts, 0, largest_experts) != text.experts) {
      reader_.reject(
          ErrorCode::bad_input, "num_local_experts",
          fmt::format("is {}, but num_experts is {}", reader_.shown("num_local_experts"), text.experts));
    }
    text.decoder_sparse_step = reader_.integer_or("decoder_sparse_step", 1, 1, largest_layers);
    text.dense_layers = reader_.integers("mlp_only_layers", largest_layers, 0, largest_layers);
    text.normalize_top_k = reader_.boolean_or("norm_topk_prob", false);
    if (text.experts == 0) return;
    text.experts_per_token = reader_.integer("num_experts_per_tok", 1, text.experts);
    text.expert_intermediate_size = reader_.integer("moe_intermediate_size", 1, largest_intermediate);
    if (text.experts * text.layers > largest_expert_total) {
      reader_.reject(ErrorCode::bad_input, key,
                     fmt::format("is {}, which over {} layers makes more than {} experts", text.experts,
                                 text.layers, largest_expert_total));
    }
  }

  void parse_tokens(TextConfig& text) {
    text.bos_token = reader_.optional_integer("bos_token_id", 0, largest_token);
    ConfigReader& eos = reader_.has("eos_token_id") ? reader_ : top_;
    text.eos_tokens = eos.integers("eos_token_id", largest_stop_list, 0, largest_token);
  }

  void parse_tie(TextConfig& text) {
    // The model that owns the head reads its own level first; a file with the flag in one place only means
    // it.
    text.tied_embeddings =
        top_.boolean_or("tie_word_embeddings", reader_.boolean_or("tie_word_embeddings", false));
  }

  /// Options under which the graph would compute something else than the checkpoint was trained with.
  void refuse_other_maths() {
    refuse_unless_silu("hidden_act");
    if (family_.delta_net) {
      refuse_unless_silu("output_gate_type");
      if (!reader_.boolean_or("attn_output_gate", true)) {
        reader_.reject(ErrorCode::unsupported, "attn_output_gate", "is false, expected true");
      }
    }
    if (reader_.boolean_or("use_sliding_window", false) && reader_.has("sliding_window")) {
      reader_.reject(
          ErrorCode::unsupported, "use_sliding_window",
          fmt::format("is true with a sliding_window of {}, expected attention over the whole context",
                      reader_.shown("sliding_window")));
    }
    if (!reader_.boolean_or("is_causal", true)) {
      reader_.reject(ErrorCode::unsupported, "is_causal", "is false, expected a causal decoder");
    }
    for (ConfigReader* reader : {&top_, &reader_}) {
      if (reader->has("quantization_config")) {
        reader->reject(ErrorCode::unsupported, "quantization_config",
                       "says that the checkpoint is quantized, expected float weights",
                       "use the float checkpoint that it was made from");
      }
    }
    refuse_other_heads();
  }

  void refuse_unless_silu(const char* key) {
    const std::string name = reader_.string_or(key, "silu");
    if (name == "silu" || name == "swish") return;
    reader_.reject(ErrorCode::unsupported, key, fmt::format("is {}, expected silu", reader_.shown(key)));
  }

  /// Classifiers and reward models share the body but have another head.
  void refuse_other_heads() {
    const std::vector<std::string> classes = top_.strings("architectures", 16);
    const bool known = std::any_of(classes.begin(), classes.end(), [](const std::string& name) {
      return name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration");
    });
    if (classes.empty() || known) return;
    top_.reject(ErrorCode::unsupported, "architectures",
                fmt::format("is {}, expected a class ending in ForCausalLM or ForConditionalGeneration",
                            top_.shown("architectures")));
  }

  const Json& json_;
  const Json& text_;
  const std::string& prefix_;
  const std::string& origin_;
  const ModelFamily& family_;
  ConfigReader top_;
  ConfigReader reader_;
};

/// The text part's own type must belong to the family: "qwen3_5_moe_text" inside "qwen3_5" is another model.
Status check_text_type(const Json& text, const ModelFamily& family, const std::string& origin) {
  const Json* type = member(text, "model_type");
  if (type == nullptr) return {};
  const std::string own(family.model_type);
  const std::string name = type->is_string() ? type->get<std::string>() : std::string();
  if (name == own || name == own + "_text" || name == family.text_type) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{}: 'text_config.model_type' is {}, expected {} or {}_text", origin,
                          shortened(*type), own, own));
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& json, const std::string& origin) {
  if (!json.is_object()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected a JSON object, got {}", origin, json.type_name()));
  }
  const Json* type = member(json, "model_type");
  if (type == nullptr || !type->is_string()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: 'model_type' is {}, expected a string", origin,
                            type == nullptr ? std::string("missing") : shortened(*type)),
                "give the folder of a Hugging Face checkpoint: its config.json names the model_type");
  }
  const auto& name = type->get_ref<const std::string&>();
  const ModelFamily* family = find_family(name);
  if (family == nullptr) return tl::unexpected<Error>(unknown_model_type(name, origin));

  // Checkpoints of Qwen2-VL from before transformers 4.52 keep the text keys at the top level.
  const Json* nested = family->multimodal ? member(json, "text_config") : nullptr;
  if (nested == nullptr) {
    const std::string prefix;
    return ConfigParser(json, origin, *family, json, prefix).run();
  }
  if (!nested->is_object()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: 'text_config' is {}, expected an object", origin, shortened(*nested)));
  }
  HEXLM_TRY(check_text_type(*nested, *family, origin));
  const std::string prefix = "text_config.";
  return ConfigParser(json, origin, *family, *nested, prefix).run();
}

void apply_checkpoint_facts(ModelConfig& config, bool has_lm_head) {
  if (has_lm_head || config.text.tied_embeddings) return;
  config.text.tied_embeddings = true;
  config.notes.emplace_back(
      "the checkpoint has no lm_head.weight though its config.json does not tie it: the embedding serves as "
      "both");
}

}  // namespace hexlm
