#include "models/vision_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "models/config_reader.hpp"
#include "models/model_config.hpp"
#include "models/registry.hpp"

namespace hexlm {
namespace {

// Several times the largest published tower in each direction, for the reason given in config.cpp.
constexpr int64_t largest_depth = 1024;
constexpr int64_t largest_width = 1 << 16;
constexpr int64_t largest_tower_heads = 1 << 10;
constexpr int64_t largest_patch = 256;
constexpr int64_t largest_merge = 16;
constexpr int64_t largest_table = 1 << 20;
constexpr int64_t largest_window = 1 << 14;
constexpr int64_t largest_image_token = int64_t{1} << 24;

class VisionConfigParser {
 public:
  VisionConfigParser(const ModelConfig& config, const VisionFamily& family, const Json& vision,
                     const std::string& origin)
      : config_(config),
        family_(family),
        reader_(origin, {{&vision, "vision_config."}}),
        rope_reader_(origin, {{member(vision, "rope_parameters"), "vision_config.rope_parameters."},
                              {&vision, "vision_config."}}),
        top_(origin, {{&config.source, ""}}) {}

  Result<VisionConfig> run() {
    parse_widths();
    parse_patches();
    parse_activation();
    if (family_.position_embeddings > 0) parse_position_table();
    if (family_.window_size > 0) parse_windows();
    parse_deepstack();
    vision_.image_token = static_cast<int32_t>(
        top_.integer_or("image_token_id", family_.image_token, 0, largest_image_token - 1));
    if (vision_.image_token >= config_.text.vocabulary_size) {
      top_.reject(ErrorCode::bad_input, "image_token_id",
                  fmt::format("is {}, expected an id below vocab_size, {}", vision_.image_token,
                              config_.text.vocabulary_size));
    }
    HEXLM_TRY(reader_.status());
    HEXLM_TRY(rope_reader_.status());
    HEXLM_TRY(top_.status());
    return std::move(vision_);
  }

 private:
  void parse_widths() {
    vision_.depth = reader_.integer_or("depth", family_.depth, 1, largest_depth);
    // In Qwen2-VL `hidden_size` is the output's width and `embed_dim` the tower's (spec B.0).
    const bool embed = family_.mlp_ratio > 0;
    const char* width = embed ? "embed_dim" : "hidden_size";
    const char* output = embed ? "hidden_size" : "out_hidden_size";
    vision_.hidden_size = reader_.integer_or(width, family_.hidden_size, 4, largest_width);
    vision_.heads = reader_.integer_or("num_heads", family_.heads, 1, largest_tower_heads);
    vision_.output_size = reader_.integer_or(output, family_.output_size, 1, largest_width);
    if (embed) {
      const double ratio = reader_.number_or("mlp_ratio", static_cast<double>(family_.mlp_ratio), 0.01, 64);
      vision_.intermediate_size = static_cast<int64_t>(static_cast<double>(vision_.hidden_size) * ratio);
    } else {
      vision_.intermediate_size =
          reader_.integer_or("intermediate_size", family_.intermediate_size, 1, 4 * largest_width);
    }
    if (vision_.intermediate_size < 1) {
      reader_.reject(ErrorCode::bad_input, "mlp_ratio", "leaves the MLP no channel");
    }
    if (vision_.hidden_size % vision_.heads != 0 || vision_.hidden_size / vision_.heads % 4 != 0) {
      reader_.reject(ErrorCode::bad_input, width,
                     fmt::format("is {}, expected num_heads, {}, times a multiple of 4", vision_.hidden_size,
                                 vision_.heads));
    }
    if (vision_.output_size != config_.text.hidden_size) {
      reader_.reject(ErrorCode::bad_input, output,
                     fmt::format("is {}, expected the language model's hidden_size, {}", vision_.output_size,
                                 config_.text.hidden_size));
    }
    vision_.rope_theta = rope_reader_.number_or("rope_theta", vision_.rope_theta, 1, 1e12);
  }

  void parse_patches() {
    vision_.patch_size = reader_.integer_or("patch_size", family_.patch_size, 1, largest_patch);
    vision_.temporal_patch_size = reader_.integer_or("temporal_patch_size", 2, 1, 16);
    vision_.merge_size = reader_.integer_or("spatial_merge_size", 2, 1, largest_merge);
    // Hub files of Qwen2-VL and Qwen2.5-VL say `in_chans`.
    const char* key = reader_.has("in_channels") ? "in_channels" : "in_chans";
    vision_.channels = reader_.integer_or(key, 3, 1, 64);
    if (vision_.channels != 3) {
      reader_.reject(ErrorCode::unsupported, key, fmt::format("is {}, expected 3 (RGB)", vision_.channels));
    }
  }

  void parse_activation() {
    const std::string name = reader_.string_or("hidden_act", std::string(family_.activation));
    if (family_.gated_mlp) {
      if (name != "silu" && name != "swish") refuse_activation(name, "silu");
      return;
    }
    constexpr std::array<std::pair<std::string_view, op::Gelu::Kind>, 4> known = {
        {{"gelu_pytorch_tanh", op::Gelu::Kind::tanh},
         {"gelu_new", op::Gelu::Kind::tanh},
         {"gelu", op::Gelu::Kind::erf},
         {"quick_gelu", op::Gelu::Kind::quick}}};
    const auto* found =
        std::find_if(known.begin(), known.end(), [&](auto& entry) { return entry.first == name; });
    if (found == known.end()) return refuse_activation(name, "gelu_pytorch_tanh, gelu or quick_gelu");
    vision_.activation = found->second;
  }

  void refuse_activation(const std::string& name, std::string_view expected) {
    reader_.reject(ErrorCode::unsupported, "hidden_act",
                   fmt::format("is '{}', expected {}", name.substr(0, 60), expected));
  }

  void parse_position_table() {
    const int64_t count =
        reader_.integer_or("num_position_embeddings", family_.position_embeddings, 1, largest_table);
    vision_.position_side = std::llround(std::sqrt(static_cast<double>(count)));
    if (vision_.position_side * vision_.position_side != count) {
      reader_.reject(ErrorCode::bad_input, "num_position_embeddings",
                     fmt::format("is {}, expected a square number", count));
    }
  }

  void parse_windows() {
    const int64_t window = reader_.integer_or("window_size", family_.window_size, 1, largest_window);
    const int64_t cell = std::max<int64_t>(1, vision_.patch_size * vision_.merge_size);
    vision_.window_cells = window / cell;
    if (vision_.window_cells < 1) {
      reader_.reject(
          ErrorCode::bad_input, "window_size",
          fmt::format("is {}, expected at least patch_size times spatial_merge_size, {}", window, cell));
    }
    vision_.full_attention_blocks =
        reader_.integers("fullatt_block_indexes", largest_depth, 0, largest_depth);
    if (!reader_.has("fullatt_block_indexes")) vision_.full_attention_blocks = {7, 15, 23, 31};
  }

  void parse_deepstack() {
    const char* key = "deepstack_visual_indexes";
    vision_.deepstack_blocks =
        reader_.integers(key, largest_depth, 0, std::max<int64_t>(0, vision_.depth - 1));
    if (family_.deepstack && !reader_.has(key)) vision_.deepstack_blocks = {8, 16, 24};
    if (!family_.deepstack && !vision_.deepstack_blocks.empty()) {
      reader_.reject(ErrorCode::unsupported, key,
                     fmt::format("is {}, expected none in {}", reader_.shown(key), config_.model_type));
    }
    const auto& blocks = vision_.deepstack_blocks;
    if (std::adjacent_find(blocks.begin(), blocks.end(), std::greater_equal<>()) != blocks.end() ||
        (!blocks.empty() && blocks.back() >= vision_.depth)) {
      reader_.reject(
          ErrorCode::bad_input, key,
          fmt::format("is {}, expected rising blocks below depth, {}", reader_.shown(key), vision_.depth));
    }
    if (static_cast<int64_t>(blocks.size()) > config_.text.layers) {
      reader_.reject(ErrorCode::bad_input, key,
                     fmt::format("has {} blocks, expected at most one a decoder layer, {}", blocks.size(),
                                 config_.text.layers));
    }
  }

  const ModelConfig& config_;
  const VisionFamily& family_;
  ConfigReader reader_;
  ConfigReader rope_reader_;
  ConfigReader top_;
  VisionConfig vision_;
};

}  // namespace

Status resolve_vision(ModelConfig& config, bool has_tower_weights, const std::string& origin) {
  config.vision.reset();
  config.has_vision = config.has_vision && has_tower_weights;
  if (!config.has_vision) return {};
  const ModelFamily* family = find_family(config.model_type);
  if (family == nullptr || family->vision == nullptr) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: model_type '{}' has no vision tower", origin, config.model_type));
  }
  const Json* vision = member(config.source, "vision_config");
  if (vision == nullptr || !vision->is_object()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: 'vision_config' is {}, expected an object", origin,
                            vision == nullptr ? std::string("missing") : shortened(*vision)));
  }
  HEXLM_ASSIGN(config.vision, VisionConfigParser(config, *family->vision, *vision, origin).run());
  return {};
}

}  // namespace hexlm
