#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"
#include "formats/json.hpp"
#include "formats/package.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"
#include "quantization/adapted_weights.hpp"
#include "tokenizer/chat_template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace hexlm {

/// Sampling settings (spec F.3). Temperature 0 is greedy.
struct SamplingOptions {
  float temperature = 0;
  int32_t top_k = 0;  ///< 0: off
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  ///< over prompt and output, once per distinct token
  float presence_penalty = 0;    ///< over output tokens only
  float frequency_penalty = 0;   ///< over output tokens only
  uint64_t seed = 0;
};

/// What generation_config.json (and a package's config.json) say about generating.
struct GenerationDefaults {
  SamplingOptions sampling;
  std::vector<int32_t> eos_tokens;  ///< union of config.json, generation_config.json and the tokenizer's eos
  std::optional<int64_t> max_new_tokens;
};

struct ModelOpenOptions {
  int threads = 1;
  bool verify = true;  ///< check every tensor's checksum (packages) or for NaN (checkpoints)
  std::vector<AdapterChoice> merged_adapters;  ///< merged into a checkpoint while its weights are read
  bool rotated = false;  ///< a checkpoint's residual stream is turned, see RotatedWeights
};

/// An opened model, a package or Hugging Face checkpoint folder or a .gguf file: configuration, graph,
/// weights (memory mapped), and where present tokenizer, chat template and generation defaults.
class Model {
 public:
  /// Errors: bad_input (missing or malformed file, shape or checksum mismatch, NaN, tokenizer larger than the
  /// vocabulary: names file, tensor and both values); unsupported (unknown architecture).
  static Result<std::shared_ptr<const Model>> open(const std::string& folder,
                                                   const ModelOpenOptions& options);

  const std::string& folder() const { return folder_; }
  bool is_package() const { return package_ != nullptr; }
  const Package* package() const { return package_.get(); }
  const ModelConfig& config() const { return config_; }
  std::shared_ptr<const Graph> graph() const { return graph_; }
  /// The vision tower; nullptr for a model without one, or with its weights left out.
  std::shared_ptr<const Graph> vision_graph() const { return vision_graph_; }
  std::shared_ptr<const WeightSource> weights() const { return weights_; }
  /// nullptr when the folder has no tokenizer.json (synthesized models): token ids still work.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  /// Why the folder's chat template can't be used, when it has one that can't.
  const std::optional<Error>& chat_template_error() const { return chat_template_error_; }
  /// {"bos_token": "…", "eos_token": "…", …} of tokenizer_config.json, for chat templates.
  const Json& special_tokens() const { return special_tokens_; }
  const GenerationDefaults& generation() const { return generation_; }
  /// The package's config.json (run-time defaults), or an empty object for a checkpoint.
  const Json& settings() const { return settings_; }
  /// How a weight lies in the file: two-level codecs, whose scales backends see expanded, are named here.
  struct StoredForm {
    Codec codec;
    uint64_t bytes = 0;
  };
  Result<StoredForm> stored_form(const Parameter& parameter) const;
  /// Checks the weights of the vision tower, which `open` leaves alone so that a text-only run never reads
  /// them: checksums of a package, NaN in a checkpoint. Errors: bad_input as `open`.
  Status verify_vision(int threads) const;
  /// Stored bits of all weights, the vision tower's among them, over their elements.
  double bits_per_weight() const;
  uint64_t weight_bytes() const;
  uint64_t vision_weight_bytes() const;
  int64_t parameter_count() const;
  /// Ids that exist: min(vocabulary rows, tokenizer size); larger ids are never sampled (spec A.0).
  int64_t usable_vocabulary() const;
  /// Tokens that the position encoding is made for: max_position_embeddings, with yarn at least its factor
  /// times the original context (files differ in which of the two they write).
  int64_t max_context() const;

 private:
  Model() = default;
  Status open_package(const ModelOpenOptions& options);
  Status open_checkpoint(const ModelOpenOptions& options);
  Status open_text_files();
  uint64_t bytes_of(const Graph& graph) const;
  std::string folder_;
  ModelConfig config_;
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const Graph> vision_graph_;
  std::shared_ptr<const WeightSource> weights_;
  std::map<std::string, std::string> files_;  ///< that a GGUF file holds: tokenizer.json, …
  std::shared_ptr<const Package> package_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::optional<Error> chat_template_error_;
  Json special_tokens_;
  GenerationDefaults generation_;
  Json settings_;
};

}  // namespace hexlm
