#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// Rotary embedding settings after merging `rope_parameters`, `rope_scaling` and the top level (spec A.0).
struct RopeConfig {
  enum class Type : uint8_t { standard, linear, yarn, llama3 };
  Type type = Type::standard;
  double theta = 10000;
  double partial_rotary_factor = 1;
  double factor = 1;
  std::optional<double> attention_factor;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position = 0;
  std::vector<int64_t> mrope_section;  ///< empty without multimodal rope
  bool mrope_interleaved = false;
};

enum class LayerType : uint8_t { full_attention, linear_attention };

/// Everything a text decoder's definition needs, after aliases and defaults (spec A.0).
struct TextConfig {
  std::string model_type;  ///< of the text part: qwen2, qwen3, qwen3_moe, llama, qwen3_5_text
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t query_heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocabulary_size = 0;
  int64_t max_positions = 0;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;
  std::vector<LayerType> layer_types;
  // gated delta net
  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;
  int64_t linear_key_dim = 0;
  int64_t linear_value_dim = 0;
  int64_t convolution_taps = 4;
  // mixture of experts
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_intermediate_size = 0;
  bool normalize_top_k = true;
  int64_t decoder_sparse_step = 1;
  std::vector<int64_t> dense_layers;  ///< mlp_only_layers
  // ids
  std::optional<int64_t> bos_token;
  std::vector<int64_t> eos_tokens;
};

struct ModelConfig {
  std::string model_type;  ///< top level, as written in config.json
  TextConfig text;
  std::string dtype;  ///< dtype or torch_dtype, "" when absent
  bool has_vision = false;
  std::vector<std::string> notes;  ///< what the file leaves open or contradicts itself in, and what was taken
  Json source;                     ///< config.json whole
};

/// Reads a config.json. Errors: bad_input (a key missing or of the wrong type or range: names file, key,
/// value); unsupported for an unknown `model_type`, with the supported list and the nearest as hint, and for
/// rope types or options that are not implemented (never silently ignored).
Result<ModelConfig> parse_model_config(const Json& json, const std::string& origin);

/// A checkpoint without `lm_head.weight` is tied whatever its config says (spec A.0); a note says so.
void apply_checkpoint_facts(ModelConfig& config, bool has_lm_head);

/// `model_type`s with a definition.
std::vector<std::string> supported_model_types();

/// inverse_frequencies, position streams and attention factor (spec A.1, C) in the arithmetic transformers
/// uses.
op::Rope make_rope(const RopeConfig& config, int64_t head_dim);

/// The decoder's graph. Inputs: ids i32 [T]; positions i32 [3, T]; rows i32 [R]. Output: logits [R,
/// vocabulary]. One definition per family, one file each (llama.cpp holds what llama, qwen2 and qwen3 share).
Result<Graph> build_text_graph(const ModelConfig& config);

}  // namespace hexlm
