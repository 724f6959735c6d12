#pragma once

#include <string>
#include <string_view>

#include "models/model_config.hpp"

namespace hexlm {

/// The name that transformers gives a canonical parameter in a checkpoint of this architecture (spec A.6):
/// `model.` before it, `model.language_model.` in a multimodal checkpoint, `model.` before `visual.`, and a
/// bare `lm_head`.
std::string checkpoint_name(const ModelConfig& config, std::string_view canonical);

}  // namespace hexlm
