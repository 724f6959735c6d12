#include "quantization/gguf_source.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "base/half.hpp"
#include "base/text.hpp"
#include "quantization/gguf_blocks.hpp"
#include "quantization/imported_matrix.hpp"
#include "quantization/low_rank.hpp"

namespace hexlm {
namespace {

constexpr float largest_scale = 65504;  // fp16's, which kernels with int8 activations hold scales in

Codec float_codec_of(GgufType type) {
  if (type == GgufType::f16) return {Codec::Kind::f16, 16, 0, true};
  if (type == GgufType::bf16) return {Codec::Kind::bf16, 16, 0, true};
  return {};
}

DType dtype_of(GgufType type) {
  if (type == GgufType::f16) return DType::f16;
  return type == GgufType::bf16 ? DType::bf16 : DType::f32;
}

/// Whether the order moves whole groups of columns.
bool keeps_groups(const std::vector<int64_t>& order, int64_t group) {
  for (size_t i = 0; i < order.size(); ++i) {
    const auto within = static_cast<int64_t>(i) % group;
    if (order[i] % group != within || order[i] - within != order[i - static_cast<size_t>(within)])
      return false;
  }
  return true;
}

/// out[r, c] = in[rows[r], columns[c]], empty orders meaning unchanged; `unit` divides columns for scales.
template <class Element>
void reorder(std::vector<Element>& values, const GgufWeight& weight, int64_t rows, int64_t columns,
             int64_t unit) {
  if (weight.rows.empty() && weight.columns.empty()) return;
  std::vector<Element> out(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = weight.rows.empty() ? r : weight.rows[static_cast<size_t>(r)];
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t column =
          weight.columns.empty() ? c : weight.columns[static_cast<size_t>(c * unit)] / unit;
      out[static_cast<size_t>(r * columns + c)] = values[static_cast<size_t>(row * columns + column)];
    }
  }
  values = std::move(out);
}

std::vector<float> float_values(const GgufTensor& tensor) {
  if (codec_of_blocks(tensor.type)) {
    const DecodedBlocks decoded = decode_blocks(tensor);
    const WeightView view = store_floats(tensor.name, decoded.grid, decoded.codes);
    return tensor_floats(view.data);
  }
  return tensor_floats({tensor.name, dtype_of(tensor.type), tensor.shape, tensor.bytes});
}

}  // namespace

Result<std::shared_ptr<const SourceWeights>> GgufWeights::create(std::shared_ptr<const GgufFile> file,
                                                                 const ModelConfig& config) {
  std::shared_ptr<GgufWeights> weights(new GgufWeights());
  weights->file_ = std::move(file);
  HEXLM_ASSIGN(std::vector<GgufWeight> all, gguf_weights(*weights->file_, config));
  for (GgufWeight& weight : all) {
    Entry entry;
    const std::optional<Codec> codec = codec_of_blocks(weight.tensor->type);
    const bool changes = weight.values != GgufWeight::Values::same;
    const bool moves = !weight.rows.empty() || !weight.columns.empty();
    if (!codec) {
      entry.computed = changes || moves;
      entry.codec = entry.computed ? Codec{} : float_codec_of(weight.tensor->type);
    } else {
      entry.computed = true;
      const bool kept = weight.shape.size() == 2 && !changes && keeps_groups(weight.columns, codec->group);
      entry.codec = kept ? *codec : Codec{};
    }
    entry.weight = std::move(weight);
    std::string name = entry.weight.name;
    if (!weights->weights_.emplace(name, std::move(entry)).second) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: two tensors stand for the weight '{}'", weights->origin(), name));
    }
  }
  return std::shared_ptr<const SourceWeights>(std::move(weights));
}

Result<const GgufWeights::Entry*> GgufWeights::entry(std::string_view name) const {
  const auto found = weights_.find(name);
  if (found != weights_.end()) return &found->second;
  return fail(ErrorCode::bad_input, fmt::format("{}: the weight '{}' is missing", origin(), name));
}

Result<WeightView> GgufWeights::describe(std::string_view name) const {
  HEXLM_ASSIGN(const Entry* const found, entry(name));
  WeightView view = describe_weight(found->weight.name, found->codec, found->weight.shape);
  if (found->codec.is_float())
    view.data.dtype = found->computed ? DType::f32 : dtype_of(found->weight.tensor->type);
  view.data.name = found->weight.tensor->name;
  return view;
}

Result<WeightView> GgufWeights::find(std::string_view name) const {
  HEXLM_ASSIGN(const Entry* const found, entry(name));
  const GgufWeight& weight = found->weight;
  const GgufTensor& tensor = *weight.tensor;
  if (!found->computed) {
    HEXLM_ASSIGN(WeightView view, describe(name));
    view.data.bytes = tensor.bytes;
    return view;
  }
  if (found->codec.is_float()) {
    std::vector<float> values = float_values(tensor);
    const bool is_vector = tensor.shape.size() < 2;
    reorder(values, weight, is_vector ? tensor.columns() : tensor.rows(), is_vector ? 1 : tensor.columns(),
            1);
    for (float& value : values) {
      if (weight.values == GgufWeight::Values::minus_one) value -= 1;
      if (weight.values == GgufWeight::Values::log_negated) value = std::log(-value);
    }
    return store_floats(weight.name, weight.shape, std::move(values));
  }
  DecodedBlocks decoded = decode_blocks(tensor);
  ImportedGrid& grid = decoded.grid;
  for (size_t i = 0; i < grid.scales.size(); ++i) {
    if (std::fabs(grid.scales[i]) <= largest_scale && std::fabs(grid.offsets[i]) <= largest_scale) continue;
    return fail(
        ErrorCode::bad_input,
        fmt::format("{}: tensor '{}': group {} has scale {} and offset {}, expected finite ones up to {}",
                    origin(), tensor.name, i, grid.scales[i], grid.offsets[i], largest_scale),
        "the file is damaged");
  }
  reorder(decoded.codes, weight, grid.rows, grid.columns, 1);
  reorder(grid.scales, weight, grid.rows, grid.groups(), grid.group);
  reorder(grid.offsets, weight, grid.rows, grid.groups(), grid.group);
  file_->file().release(tensor.bytes);
  return store_codes(weight.name, grid, found->codec, decoded.codes);
}

std::vector<std::string> GgufWeights::names() const {
  std::vector<std::string> all;
  all.reserve(weights_.size());
  for (const auto& [name, entry] : weights_) all.push_back(name);
  return all;
}

void GgufWeights::release(const WeightView& weight) const {
  if (const MappedFile* file = mapping(weight)) file->release(weight.data.bytes);
}

const MappedFile* GgufWeights::mapping(const WeightView& weight) const {
  return weight.storage != nullptr ? nullptr : &file_->file();
}

bool GgufWeights::is_computed(std::string_view name) const {
  const auto found = weights_.find(name);
  return found != weights_.end() && found->second.computed;
}

std::string GgufWeights::note_of(std::string_view name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end() || !codec_of_blocks(found->second.weight.tensor->type)) return {};
  return fmt::format("{}: {}", to_string(found->second.weight.tensor->type),
                     found->second.codec.is_float() ? "dequantized to f32" : "codes kept");
}

}  // namespace hexlm
