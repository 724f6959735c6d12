#include <array>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "models/decoder.hpp"
#include "models/gguf.hpp"

namespace hexlm {
namespace {

/// What llama.cpp did to a tensor beside renaming it.
enum class GgufOrder : uint8_t {
  none,
  query_rows,     ///< llama: rotary pairs next to each other, by query head
  key_rows,       ///< the same by key/value head
  value_rows,     ///< value heads reordered: rows in blocks of a head
  value_entries,  ///< one row (or element) a value head
  qkv_rows,       ///< only the value rows behind those of q and k
  value_columns,  ///< columns in blocks of a head
};

struct GgufName {
  std::string_view gguf;
  std::string_view canonical;
  GgufOrder order = GgufOrder::none;
  GgufWeight::Values values = GgufWeight::Values::same;
};

constexpr auto centred = GgufWeight::Values::minus_one;

/// Below "blk.N.": of every architecture.
constexpr std::array<GgufName, 15> layer_names = {{
    {"attn_norm.weight", "input_layernorm.weight", GgufOrder::none, centred},
    {"ffn_norm.weight", "post_attention_layernorm.weight", GgufOrder::none, centred},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", GgufOrder::none, centred},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", GgufOrder::none, centred},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", GgufOrder::none, centred},
    {"attn_q.weight", "self_attn.q_proj.weight", GgufOrder::query_rows},
    {"attn_k.weight", "self_attn.k_proj.weight", GgufOrder::key_rows},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias", GgufOrder::query_rows},
    {"attn_k.bias", "self_attn.k_proj.bias", GgufOrder::key_rows},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
}};
/// Of qwen35's delta-net layers.
constexpr std::array<GgufName, 9> delta_net_names = {{
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", GgufOrder::qkv_rows},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", GgufOrder::value_rows},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", GgufOrder::value_entries},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", GgufOrder::value_entries},
    {"ssm_a", "linear_attn.A_log", GgufOrder::value_entries, GgufWeight::Values::log_negated},
    {"ssm_dt.bias", "linear_attn.dt_bias", GgufOrder::value_entries},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", GgufOrder::qkv_rows},
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight", GgufOrder::value_columns},
}};

class GgufWeightReader {
 public:
  GgufWeightReader(const GgufFile& file, const ModelConfig& config)
      : file_(file),
        text_(config.text),
        delta_net_(config.text.model_type == "qwen3_5_text"),
        llama_(config.text.model_type == "llama") {}

  Result<std::vector<GgufWeight>> read() {
    std::vector<GgufWeight> all;
    for (const GgufTensor& tensor : file_.content().tensors) {
      HEXLM_ASSIGN(std::optional<GgufWeight> weight, read_tensor(tensor));
      if (weight) all.push_back(*std::move(weight));
    }
    return all;
  }

 private:
  Result<std::optional<GgufWeight>> read_tensor(const GgufTensor& tensor) const {
    if (tensor.name == "token_embd.weight") return named(tensor, "embed_tokens.weight");
    if (tensor.name == "output.weight") return named(tensor, "lm_head.weight");
    if (tensor.name == "output_norm.weight") {
      std::optional<GgufWeight> weight = named(tensor, "norm.weight");
      if (delta_net_) weight->values = centred;
      return weight;
    }
    if (tensor.name == "rope_freqs.weight") return std::optional<GgufWeight>();  // in the configuration
    std::string_view rest = tensor.name;
    if (!rest.starts_with("blk.")) return unknown(tensor);
    rest.remove_prefix(4);
    const size_t dot = rest.find('.');
    int64_t layer = 0;
    if (dot == std::string_view::npos || !parse_integer(rest.substr(0, dot), layer) || layer < 0) {
      return unknown(tensor);
    }
    if (layer >= text_.layers) return std::optional<GgufWeight>();  // predicts further tokens; not run
    rest.remove_prefix(dot + 1);
    const GgufName* name = find_name(rest);
    if (name == nullptr) return unknown(tensor);
    GgufWeight weight = named(tensor, layer_prefix(layer) + std::string(name->canonical));
    if (name->values != centred || delta_net_) weight.values = name->values;
    // The file has no place for the middle dimension of 1.
    if (rest == "ssm_conv1d.weight" && tensor.shape.size() == 2) {
      weight.shape = {tensor.shape[0], 1, tensor.shape[1]};
    }
    HEXLM_TRY(set_order(weight, name->order));
    return std::optional<GgufWeight>(std::move(weight));
  }

  static GgufWeight named(const GgufTensor& tensor, std::string name) {
    GgufWeight weight;
    weight.name = std::move(name);
    weight.tensor = &tensor;
    weight.shape = tensor.shape;
    return weight;
  }

  tl::unexpected<Error> unknown(const GgufTensor& tensor) const {
    return fail(ErrorCode::unsupported, fmt::format("{}: tensor '{}' has no place in a {} model",
                                                    file_.file().path(), tensor.name, text_.model_type));
  }

  const GgufName* find_name(std::string_view name) const {
    if (delta_net_) {
      for (const GgufName& each : delta_net_names) {
        if (each.gguf == name) return &each;
      }
    }
    for (const GgufName& each : layer_names) {
      if (each.gguf == name) return &each;
    }
    return nullptr;
  }

  Status set_order(GgufWeight& weight, GgufOrder order) const {
    const std::vector<int64_t>& shape = weight.tensor->shape;
    const int64_t rows = shape.empty() ? 0 : shape[0];
    const int64_t width = text_.linear_value_dim;
    const int64_t heads = text_.linear_value_heads;
    switch (order) {
      case GgufOrder::none:
        return {};
      case GgufOrder::query_rows:
        return llama_ ? pairs(weight, rows, text_.query_heads) : Status();
      case GgufOrder::key_rows:
        return llama_ ? pairs(weight, rows, text_.key_value_heads) : Status();
      case GgufOrder::value_rows:
        return value_blocks(weight, weight.rows, rows, 0, width);
      case GgufOrder::value_entries:
        return value_blocks(weight, weight.rows, rows, 0, 1);
      case GgufOrder::qkv_rows:
        return value_blocks(weight, weight.rows, rows, rows - heads * width, width);
      case GgufOrder::value_columns:
        return value_blocks(weight, weight.columns, weight.tensor->columns(), 0, width);
    }
    return {};
  }

  tl::unexpected<Error> misfit(const GgufWeight& weight, const std::string& expected) const {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: tensor '{}' has shape {}, expected {}", file_.file().path(),
                            weight.tensor->name, format_shape(weight.tensor->shape), expected));
  }

  /// A head's rows are stored as D/2 pairs and belong as two halves of D/2.
  Status pairs(GgufWeight& weight, int64_t rows, int64_t heads) const {
    const int64_t head = text_.head_dim;
    if (rows != heads * head || head % 2 != 0) return misfit(weight, fmt::format("{} rows", heads * head));
    weight.rows.resize(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t within = row % head;
      const int64_t half = within / (head / 2);
      weight.rows[static_cast<size_t>(row)] = row / head * head + within % (head / 2) * 2 + half;
    }
    return {};
  }

  /// From `first` on, blocks of `width` by value head: key head k's j-th is block k·r + j here, j·Hk + k
  /// there.
  Status value_blocks(GgufWeight& weight, std::vector<int64_t>& order, int64_t size, int64_t first,
                      int64_t width) const {
    const int64_t heads = text_.linear_value_heads;
    const int64_t keys = text_.linear_key_heads;
    if (first < 0 || size - first != heads * width) {
      return misfit(weight, fmt::format("{} value heads of {}", heads, width));
    }
    const int64_t ratio = keys > 0 ? heads / keys : 0;
    if (ratio <= 1) return {};
    order.resize(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t head = (i - first) / width;
      const int64_t from = head % ratio * keys + head / ratio;
      order[static_cast<size_t>(i)] = i < first ? i : first + from * width + (i - first) % width;
    }
    return {};
  }

  const GgufFile& file_;
  const TextConfig& text_;
  bool delta_net_;
  bool llama_;
};

}  // namespace

Result<std::vector<GgufWeight>> gguf_weights(const GgufFile& file, const ModelConfig& config) {
  return GgufWeightReader(file, config).read();
}

}  // namespace hexlm
