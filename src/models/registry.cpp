#include "models/registry.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace hexlm {
namespace {

// Defaults are those of the configuration classes in transformers (spec A.0, A.1).
constexpr VisionFamily qwen2_vl_tower = {.depth = 32,
                                         .hidden_size = 1280,
                                         .mlp_ratio = 4,
                                         .output_size = 3584,
                                         .patch_size = 14,
                                         .activation = "quick_gelu",
                                         .image_token = 151655,
                                         .build = build_qwen2_vl_tower};
constexpr VisionFamily qwen2_5_vl_tower = {.depth = 32,
                                           .hidden_size = 1280,
                                           .intermediate_size = 3420,
                                           .output_size = 3584,
                                           .patch_size = 14,
                                           .activation = "silu",
                                           .gated_mlp = true,
                                           .window_size = 112,
                                           .image_token = 151655,
                                           .build = build_qwen2_5_vl_tower};
constexpr VisionFamily qwen3_vl_tower = {.depth = 27,
                                         .hidden_size = 1152,
                                         .intermediate_size = 4304,
                                         .output_size = 3584,
                                         .patch_size = 16,
                                         .activation = "gelu_pytorch_tanh",
                                         .position_embeddings = 2304,
                                         .deepstack = true,
                                         .image_token = 151655,
                                         .build = build_qwen3_vl_tower};
constexpr VisionFamily qwen3_5_tower = {.depth = 27,
                                        .hidden_size = 1152,
                                        .intermediate_size = 4304,
                                        .output_size = 3584,
                                        .patch_size = 16,
                                        .activation = "gelu_pytorch_tanh",
                                        .position_embeddings = 2304,
                                        .image_token = 248056,
                                        .build = build_qwen3_vl_tower};

constexpr std::array<ModelFamily, 9> families = {{
    {.model_type = "llama", .text_type = "llama", .build = build_dense_decoder},
    {.model_type = "qwen2", .text_type = "qwen2", .build = build_dense_decoder},
    {.model_type = "qwen2_vl",
     .text_type = "qwen2",
     .multimodal = true,
     .mrope = MropeLayout::chunked,
     .vision = &qwen2_vl_tower,
     .build = build_dense_decoder},
    {.model_type = "qwen2_5_vl",
     .text_type = "qwen2",
     .multimodal = true,
     .mrope = MropeLayout::chunked,
     .vision = &qwen2_5_vl_tower,
     .build = build_dense_decoder},
    {.model_type = "qwen3", .text_type = "qwen3", .head_dim = 128, .build = build_dense_decoder},
    {.model_type = "qwen3_vl",
     .text_type = "qwen3",
     .multimodal = true,
     .mrope = MropeLayout::interleaved,
     .mrope_section = {24, 20, 20},
     .head_dim = 128,
     .vision = &qwen3_vl_tower,
     .build = build_dense_decoder},
    {.model_type = "qwen3_moe", .text_type = "qwen3_moe", .sparse = true, .build = build_qwen3_moe},
    {.model_type = "qwen3_5",
     .text_type = "qwen3_5_text",
     .multimodal = true,
     .mrope = MropeLayout::interleaved,
     .mrope_section = {11, 11, 10},
     .head_dim = 256,
     .partial_rotary_factor = 0.25,
     .delta_net = true,
     .vision = &qwen3_5_tower,
     .build = build_qwen3_5},
    {.model_type = "qwen3_5_text",
     .text_type = "qwen3_5_text",
     .mrope = MropeLayout::interleaved,
     .mrope_section = {11, 11, 10},
     .head_dim = 256,
     .partial_rotary_factor = 0.25,
     .delta_net = true,
     .build = build_qwen3_5},
}};

}  // namespace

const ModelFamily* find_family(std::string_view model_type) {
  const auto* found = std::find_if(families.begin(), families.end(), [&](const ModelFamily& family) {
    return family.model_type == model_type;
  });
  return found == families.end() ? nullptr : &*found;
}

std::vector<std::string> supported_model_types() {
  std::vector<std::string> types;
  types.reserve(families.size());
  for (const ModelFamily& family : families) types.emplace_back(family.model_type);
  return types;
}

Error unknown_model_type(std::string_view model_type, const std::string& origin) {
  const std::vector<std::string> types = supported_model_types();
  // A longer name than any real one is quoted in part: it may be anything.
  const std::string_view shown = model_type.substr(0, 60);
  return Error{ErrorCode::unsupported,
               fmt::format("{}: model_type '{}' has no definition, expected one of {}", origin, shown,
                           fmt::join(types, ", ")),
               fmt::format("the nearest supported model_type is '{}'", nearest(shown, types))};
}

Result<Graph> build_text_graph(const ModelConfig& config) {
  const ModelFamily* family = find_family(config.model_type);
  if (family == nullptr) return tl::unexpected<Error>(unknown_model_type(config.model_type, "model"));
  if (config.text.layers <= 0 || config.text.layer_types.size() != static_cast<size_t>(config.text.layers)) {
    return fail(ErrorCode::runtime,
                fmt::format("model configuration: expected a layer type for each of {} layers, got {}",
                            config.text.layers, config.text.layer_types.size()));
  }
  return family->build(config);
}

Result<Graph> build_vision_graph(const ModelConfig& config) {
  const ModelFamily* family = find_family(config.model_type);
  if (family == nullptr || family->vision == nullptr || !config.vision) {
    return fail(ErrorCode::runtime,
                fmt::format("model_type '{}': expected a vision configuration, got none", config.model_type));
  }
  return family->vision->build(*config.vision);
}

}  // namespace hexlm
