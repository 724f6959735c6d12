#include "models/tensor_names.hpp"

#include "models/registry.hpp"

namespace hexlm {
namespace {

/// A text-only export of a multimodal family says so by its class (spec A.6, Qwen3_5ForCausalLM).
bool is_causal_lm_class(const Json& source) {
  const auto classes = source.find("architectures");
  if (classes == source.end() || !classes->is_array() || classes->empty()) return false;
  const Json& first = classes->front();
  return first.is_string() && first.get_ref<const std::string&>().ends_with("ForCausalLM");
}

}  // namespace

std::string checkpoint_name(const ModelConfig& config, std::string_view canonical) {
  std::string name(canonical);
  if (canonical.starts_with("lm_head.")) return name;
  if (canonical.starts_with("visual.")) return "model." + name;
  const ModelFamily* family = find_family(config.model_type);
  const bool nested = family != nullptr && family->multimodal && !is_causal_lm_class(config.source);
  return (nested ? "model.language_model." : "model.") + name;
}

}  // namespace hexlm
