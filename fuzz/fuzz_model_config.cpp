// layer: models
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/json.hpp"
#include "models/model_config.hpp"
#include "models/tensor_names.hpp"

namespace {

// Graphs grow with these; larger ones take the fuzzer's time and show nothing new.
constexpr int64_t layers_built = 16;
constexpr int64_t experts_built = 64;

}  // namespace

/// Whatever the file: parsing returns; and what it accepts has a graph that the verifier accepts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = hexlm::parse_json(text, "fuzz.json");
  if (!json) return 0;
  const auto config = hexlm::parse_model_config(*json, "fuzz.json");
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  if (config->text.layers > layers_built || config->text.experts > experts_built) return 0;
  const auto graph = hexlm::build_text_graph(*config);
  if (!graph || hexlm::dump(*graph).empty()) std::abort();
  for (const hexlm::Parameter& parameter : graph->parameters()) {
    if (hexlm::checkpoint_name(*config, parameter.name).empty()) std::abort();
  }
  return 0;
}
