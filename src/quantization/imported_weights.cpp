#include "quantization/imported_weights.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

namespace hexlm {
namespace {

using Format = QuantizationScheme::Format;

struct PartName {
  std::string_view suffix;
  const TensorView* PackedModule::* part;  ///< nullptr: known, and not needed for weights
};

/// The suffixes of a format's parts. The one that holds codes is last: it makes the module.
std::vector<PartName> part_names(Format format) {
  switch (format) {
    case Format::gptq_v1:
    case Format::gptq_v2:
    case Format::awq_gemm:
      return {{".scales", &PackedModule::scales},
              {".qzeros", &PackedModule::zeros},
              {".g_idx", &PackedModule::groups},
              {".qweight", &PackedModule::codes}};
    case Format::pack_quantized:
      return {{".weight_scale", &PackedModule::scales},
              {".weight_zero_point", &PackedModule::zeros},
              {".weight_g_idx", &PackedModule::groups},
              {".weight_shape", &PackedModule::shape},
              {".weight_packed", &PackedModule::codes}};
    case Format::fp8_block:
      // Activation scales say how inputs were rounded; here they stay float.
      return {{".weight_scale_inv", &PackedModule::scales},
              {".weight_scale", &PackedModule::scales},
              {".input_scale", nullptr},
              {".activation_scale", nullptr},
              {".weight", &PackedModule::codes}};
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const SourceWeights>> ImportedWeights::create(std::shared_ptr<CheckpointWeights> base,
                                                                     QuantizationScheme scheme) {
  std::shared_ptr<ImportedWeights> weights(new ImportedWeights());
  weights->base_ = std::move(base);
  weights->scheme_ = std::move(scheme);
  HEXLM_TRY(weights->collect());
  return std::shared_ptr<const SourceWeights>(std::move(weights));
}

Status ImportedWeights::collect() {
  const std::vector<PartName> parts = part_names(scheme_.format);
  std::map<std::string, Module, std::less<>> found;
  for (std::string& name : base_->names()) {
    const TensorView* tensor = base_->stored(name);
    bool taken = false;
    for (const PartName& part : parts) {
      if (!name.ends_with(part.suffix)) continue;
      const bool is_codes = part.part == &PackedModule::codes;
      // FP8 checkpoints keep float weights under the same name.
      if (scheme_.format == Format::fp8_block && is_codes && tensor->dtype != DType::f8_e4m3) break;
      taken = true;
      if (part.part == nullptr) break;
      const std::string stem = name.substr(0, name.size() - part.suffix.size());
      Module& module = found[stem + ".weight"];
      module.parts.name = stem;
      module.parts.*part.part = tensor;
      if (is_codes) {
        module.parts.path = tensor->name.substr(0, tensor->name.size() - part.suffix.size());
        module.file = base_->checkpoint().file_of(tensor->name)->path();
      }
      break;
    }
    if (!taken) names_.push_back(std::move(name));
  }
  for (auto& [name, module] : found) {
    if (module.parts.codes == nullptr) {
      return fail(
          ErrorCode::bad_input,
          fmt::format("{}: module '{}' has scales or zero points but no codes", origin(), module.parts.name),
          "the checkpoint is damaged, or config.json is of another one");
    }
    HEXLM_TRY(check_module(module));
    names_.push_back(name);
  }
  modules_ = std::move(found);
  std::sort(names_.begin(), names_.end());
  const auto twice = std::adjacent_find(names_.begin(), names_.end());
  if (twice == names_.end()) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: '{}' is there both quantized and as it is", origin(), *twice));
}

Status ImportedWeights::check_module(Module& module) const {
  const auto named = [&](Error error) {
    error.message = fmt::format("{}: {}", module.file, error.message);
    return tl::unexpected<Error>(std::move(error));
  };
  if (scheme_.format == Format::fp8_block) {
    auto shape = check_fp8(module.parts, scheme_);
    if (!shape) return named(shape.error());
    module.shape = *std::move(shape);
    return {};
  }
  const auto grid = read_grid(module.parts, scheme_);
  if (!grid) return named(grid.error());
  module.shape = {grid->rows, grid->columns};
  module.codec = codec_that_fits(*grid).value_or(Codec{});
  return {};
}

bool ImportedWeights::contains(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

Result<WeightView> ImportedWeights::describe(std::string_view name) const {
  const auto found = modules_.find(name);
  if (found == modules_.end()) return base_->describe(name);
  return describe_weight(found->first, found->second.codec, found->second.shape);
}

Result<WeightView> ImportedWeights::find(std::string_view name) const {
  const auto found = modules_.find(name);
  if (found == modules_.end()) return base_->find(name);
  const Module& module = found->second;
  if (scheme_.format == Format::fp8_block) {
    return store_floats(found->first, module.shape, decode_fp8(module.parts, scheme_));
  }
  HEXLM_ASSIGN(const ImportedGrid grid, read_grid(module.parts, scheme_));
  const std::vector<uint8_t> codes = read_codes(module.parts, scheme_, grid);
  base_->checkpoint().file_of(module.parts.codes->name)->release(module.parts.codes->bytes);
  if (module.codec.is_float()) return store_floats(found->first, grid, codes);
  return store_codes(found->first, grid, module.codec, codes);
}

void ImportedWeights::release(const WeightView& weight) const {
  if (weight.storage == nullptr) base_->release(weight);
}

const MappedFile* ImportedWeights::mapping(const WeightView& weight) const {
  return weight.storage != nullptr ? nullptr : base_->mapping(weight);
}

std::string ImportedWeights::file_of(const WeightView& weight) const {
  const auto found = modules_.find(weight.name);
  return found != modules_.end() ? found->second.file : base_->file_of(weight);
}

std::string ImportedWeights::note_of(std::string_view name) const {
  const auto found = modules_.find(name);
  if (found == modules_.end()) return {};
  return fmt::format("{}: {}", to_string(scheme_.format),
                     found->second.codec.is_float() ? "dequantized to f32" : "codes kept");
}

}  // namespace hexlm
