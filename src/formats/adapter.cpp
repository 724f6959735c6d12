#include "formats/adapter.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

#include "base/text.hpp"
#include "formats/adapter_config.hpp"
#include "formats/checkpoint_weights.hpp"

namespace hexlm {
namespace {

constexpr const char* config_name = "adapter_config.json";
constexpr const char* weights_name = "adapter_model.safetensors";
constexpr std::string_view path_prefix = "base_model.model.";

/// Which part of a module's update a tensor is. The in-memory adapter name "default" is stripped when PEFT
/// saves, but not by every tool.
enum class AdapterPart : uint8_t { down, up, up_bias, embedding_down, embedding_up, magnitude };
struct PartSuffix {
  std::string_view text;
  AdapterPart part;
};
constexpr std::array part_suffixes = {
    PartSuffix{".lora_A.weight", AdapterPart::down},
    PartSuffix{".lora_A.default.weight", AdapterPart::down},
    PartSuffix{".lora_B.weight", AdapterPart::up},
    PartSuffix{".lora_B.default.weight", AdapterPart::up},
    PartSuffix{".lora_B.bias", AdapterPart::up_bias},
    PartSuffix{".lora_B.default.bias", AdapterPart::up_bias},
    PartSuffix{".lora_embedding_A", AdapterPart::embedding_down},
    PartSuffix{".lora_embedding_A.default", AdapterPart::embedding_down},
    PartSuffix{".lora_embedding_B", AdapterPart::embedding_up},
    PartSuffix{".lora_embedding_B.default", AdapterPart::embedding_up},
    PartSuffix{".lora_magnitude_vector", AdapterPart::magnitude},
    PartSuffix{".lora_magnitude_vector.weight", AdapterPart::magnitude},
    PartSuffix{".lora_magnitude_vector.default", AdapterPart::magnitude},
    PartSuffix{".lora_magnitude_vector.default.weight", AdapterPart::magnitude},
};

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

Status check_folder_of_adapter(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: no such adapter folder", folder),
                "give the folder that holds adapter_config.json");
  }
  if (!fs::exists(folder + "/" + config_name, error)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: holds no {}", folder, config_name),
                "give a folder that PEFT saved an adapter to");
  }
  if (fs::exists(folder + "/" + weights_name, error)) return {};
  const bool pickled = fs::exists(folder + "/adapter_model.bin", error);
  return fail(ErrorCode::bad_input, fmt::format("{}: holds no {}", folder, weights_name),
              pickled ? "adapter_model.bin is pickled, which is never loaded: save it as safetensors" : "");
}

}  // namespace

class AdapterReader {
 public:
  explicit AdapterReader(std::string folder) { adapter_.folder_ = std::move(folder); }

  Result<std::shared_ptr<const Adapter>> read() {
    const std::string config_path = adapter_.folder_ + "/" + config_name;
    HEXLM_TRY(check_folder_of_adapter(adapter_.folder_));
    HEXLM_ASSIGN(const Json json, read_json(config_path));
    HEXLM_ASSIGN(config_, parse_adapter_config(json, config_path));
    HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(adapter_.folder_ + "/" + weights_name));
    adapter_.file_ = std::make_shared<const SafetensorsFile>(std::move(file));
    adapter_.transposed_ = config_.transposed;
    adapter_.base_model_ = config_.base_model;
    for (const TensorView& tensor : adapter_.file_->tensors()) HEXLM_TRY(take(tensor));
    if (adapter_.modules_.empty() && adapter_.replacements_.empty()) return bad("holds no tensor");
    for (auto& [name, module] : adapter_.modules_) HEXLM_TRY(finish(module));
    return std::make_shared<const Adapter>(std::move(adapter_));
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", adapter_.file().path(), what),
                "the adapter is damaged or of an unknown kind");
  }

  Status take(const TensorView& tensor) {
    if (!is_float(tensor.dtype)) {
      return bad(fmt::format("tensor '{}' has dtype {}, expected F32, F16 or BF16", tensor.name,
                             to_string(tensor.dtype)));
    }
    std::string_view path = tensor.name;
    if (!path.starts_with(path_prefix)) return unknown(tensor);
    path.remove_prefix(path_prefix.size());
    for (const PartSuffix& suffix : part_suffixes) {
      if (!path.ends_with(suffix.text)) continue;
      path.remove_suffix(suffix.text.size());
      return add_part(tensor, std::string(path), suffix.part);
    }
    return add_replacement(tensor, path);
  }

  tl::unexpected<Error> unknown(const TensorView& tensor) const {
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: tensor '{}' is of a kind that is not known", adapter_.file().path(), tensor.name),
        "only LoRA matrices, DoRA magnitudes, trained biases and modules_to_save can be applied");
  }

  Status add_part(const TensorView& tensor, const std::string& path, AdapterPart part) {
    const std::optional<std::string> name = canonical_name(path);
    if (!name) return unknown(tensor);
    AdapterModule& module = adapter_.modules_[*name];
    if (!module.path.empty() && module.path != path) {
      return bad(fmt::format("modules '{}' and '{}' both stand for '{}'", module.path, path, *name));
    }
    module.path = path;
    const auto set = [&](bool taken, auto& slot) -> Status {
      if (taken) return bad(fmt::format("tensor '{}' is there twice", tensor.name));
      slot = tensor;
      return {};
    };
    switch (part) {
      case AdapterPart::embedding_down:
        module.embedding = true;
        [[fallthrough]];
      case AdapterPart::down:
        return set(!module.down.shape.empty(), module.down);
      case AdapterPart::embedding_up:
        module.embedding = true;
        [[fallthrough]];
      case AdapterPart::up:
        return set(!module.up.shape.empty(), module.up);
      case AdapterPart::up_bias:
        return set(module.bias.has_value(), module.bias);
      case AdapterPart::magnitude:
        return set(module.magnitude.has_value(), module.magnitude);
    }
    return {};
  }

  /// A whole parameter: of a module that modules_to_save names, or a trained bias.
  Status add_replacement(const TensorView& tensor, std::string_view path) {
    std::string parameter(path);
    for (const std::string_view infix : {".modules_to_save.default", ".modules_to_save"}) {
      if (const size_t at = parameter.rfind(infix); at != std::string::npos) {
        parameter.erase(at, infix.size());
        break;
      }
    }
    const size_t dot = parameter.rfind('.');
    if (dot == std::string::npos) return unknown(tensor);
    const bool is_bias = parameter.substr(dot) == ".bias";
    const bool is_known =
        config_.is_saved(std::string_view(parameter).substr(0, dot)) || (is_bias && config_.trained_bias);
    const std::optional<std::string> name = canonical_name(parameter);
    if (!is_known || !name) return unknown(tensor);
    if (!adapter_.replacements_.emplace(*name, tensor).second) {
      return bad(fmt::format("two tensors replace '{}'", *name));
    }
    return {};
  }

  Status expect_shape(const TensorView& tensor, const std::vector<int64_t>& shape) const {
    if (tensor.shape == shape) return {};
    return bad(fmt::format("tensor '{}' has shape {}, expected {}", tensor.name, format_shape(tensor.shape),
                           format_shape(shape)));
  }

  /// Both matrices there, of one rank, which is the configured one.
  Status finish(AdapterModule& module) const {
    if (module.down.shape.size() != 2 || module.up.shape.size() != 2) {
      return bad(fmt::format("module '{}' lacks lora_A or lora_B, or they are no matrices", module.path));
    }
    HEXLM_ASSIGN(const int64_t rank, config_.rank_of(module.path));
    HEXLM_TRY(expect_shape(module.down, {rank, module.down.shape[1]}));
    HEXLM_TRY(expect_shape(module.up, {module.up.shape[0], rank}));
    if (module.magnitude && !config_.dora) {
      return bad(fmt::format("tensor '{}' belongs to DoRA, but {} has use_dora false", module.magnitude->name,
                             config_name));
    }
    if (config_.dora && !module.magnitude) {
      return bad(
          fmt::format("module '{}' lacks the lora_magnitude_vector that use_dora asks for", module.path));
    }
    if (module.magnitude && module.embedding) {
      return fail(ErrorCode::unsupported, fmt::format("{}: module '{}' is an embedding with DoRA",
                                                      adapter_.file().path(), module.path));
    }
    if (module.magnitude) {
      // Older versions save it as [outputs, 1].
      module.magnitude->shape = {module.magnitude->elements()};
      HEXLM_TRY(expect_shape(*module.magnitude, {module.up.shape[0]}));
    }
    if (module.bias) HEXLM_TRY(expect_shape(*module.bias, {module.up.shape[0]}));
    HEXLM_ASSIGN(const double alpha, config_.alpha_of(module.path));
    const auto divisor = static_cast<double>(rank);
    module.scaling = alpha / (config_.root_scaling ? std::sqrt(divisor) : divisor);
    return {};
  }

  Adapter adapter_;
  AdapterConfig config_;
};

Result<std::shared_ptr<const Adapter>> Adapter::open(const std::string& folder) {
  return AdapterReader(folder).read();
}

}  // namespace hexlm
