#pragma once

#include "models/config_reader.hpp"
#include "models/model_config.hpp"
#include "models/registry.hpp"

namespace hexlm {

/// Merges `rope_parameters`, `rope_scaling` and `text` itself (spec A.0). `text` holds the object that the
/// text keys lie in, `prefix` is put before its keys in messages. `notes` receives what is not said or said
/// twice.
Result<RopeConfig> parse_rope(const Json& text, const std::string& prefix, const std::string& origin,
                              const ModelFamily& family, int64_t head_dim, int64_t max_positions,
                              std::vector<std::string>& notes);

}  // namespace hexlm
