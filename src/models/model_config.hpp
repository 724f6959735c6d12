#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "graph/graph.hpp"
#include "models/vision_config.hpp"

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
  std::string dtype;        ///< dtype or torch_dtype, "" when absent
  bool has_vision = false;  ///< config.json describes a vision tower
  /// Set by `resolve_vision`: the text graph then takes image features, and a tower can be built.
  std::optional<VisionConfig> vision;
  std::vector<std::string> notes;  ///< what the file leaves open or contradicts itself in, and what was taken
  Json source;                     ///< config.json whole
};

/// Reads a config.json. Errors: bad_input (a key missing or of the wrong type or range: names file, key,
/// value); unsupported for an unknown `model_type`, with the supported list and the nearest as hint, and for
/// rope types or options that are not implemented (never silently ignored).
Result<ModelConfig> parse_model_config(const Json& json, const std::string& origin);

/// A checkpoint without `lm_head.weight` is tied whatever its config says (spec A.0); a note says so.
void apply_checkpoint_facts(ModelConfig& config, bool has_lm_head);

/// Reads `vision_config` into `config.vision` when the model has one and its weights are there; without
/// weights (a text-only export) the model is text only and `has_vision` becomes false. Errors: bad_input and
/// unsupported as parse_model_config.
Status resolve_vision(ModelConfig& config, bool has_tower_weights, const std::string& origin);
/// The weight by which a checkpoint or package shows that it holds a vision tower.
inline constexpr const char* tower_weight = "visual.patch_embed.proj.weight";

/// `model_type`s with a definition.
std::vector<std::string> supported_model_types();

/// inverse_frequencies, position streams and attention factor (spec A.1, C) in the arithmetic transformers
/// uses.
op::Rope make_rope(const RopeConfig& config, int64_t head_dim);

/// The decoder's graph. Inputs: ids i32 [T]; positions i32 [3, T]; rows i32 [R]; with `config.vision` also
/// image_features [V, H], image_index i32 [T] (the row of image_features that a token shows, −1 for text) and
/// deepstack.0, deepstack.1, … [V, H]. Output: logits [R, vocabulary]. One definition per family, one file
/// each (llama.cpp holds what llama, qwen2 and qwen3 share).
Result<Graph> build_text_graph(const ModelConfig& config);

/// The vision tower's graph, for any number of images. V counts merged cells (tokens of the language model);
/// patch rows come m² = merge_size² a cell, as `preprocess_image` lists them. Inputs, by name:
///   pixel_values [m²V, patch_elements]
///   cosine, sine [m²V, head_dim / 2]: of patch_rotary, in the order in which blocks see the patches
///   frame_ranges i32 [2, m²V]: first patch and end of each patch's attention segment
/// with a position table: tap_index i32 [4, m²V], tap_weight [4, m²V] of position_taps
/// with windows: window_ranges i32 [2, m²V]; window_cells, cell_positions i32 [V] of window_order
/// Outputs: features [V, output_size], then one of that shape for each deepstack block. Errors: runtime when
/// `config.vision` is not set.
Result<Graph> build_vision_graph(const ModelConfig& config);

}  // namespace hexlm
